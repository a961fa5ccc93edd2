"""`python run.py --help` explains the command."""

from nccl_tf.__main__ import main

if __name__ == "__main__":
    main()

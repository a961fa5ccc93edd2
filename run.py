"""`python run.py --help` explains the command."""

from nccl_tf.cli import main

if __name__ == "__main__":
    main()

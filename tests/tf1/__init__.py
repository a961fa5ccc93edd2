"""The rules of the TF1 code that the paper follows, as TF1 programs, beside the learners.

python -m tests.tf1              # the tables of docs/results/tf1.md
python -m tests.tf1 --short      # small networks, few steps: the form that most tests run
python -m tests.tf1 --mutations  # which programs notice a broken rule
"""

"""A soak: runs that are killed, stopped, starved and damaged end as those that nobody disturbed.

    python -m tests.soak --minutes=60 --seed=0
    python -m tests.soak --seed=0 --case=17            # one case again
    python -m tests.soak --command_lines=300 --seed=0  # random command lines that train

A case draws a method, a stream and options, runs them once undisturbed and once with random faults,
gone on with as the messages say, and compares the two: the SHA-256 of the final state, accuracies,
and every row of steps.csv. What is printed, and written into a file as JSON, is a line a case and
the counts; the exit code is 1 where there is a difference.

A run is a child of a process that has imported TensorFlow and run nothing (`processes.py`), so
that a fault costs about two seconds of a core instead of seven; it dies of real signals all the
same. Every 24th case takes whole processes, `python run.py`.
"""

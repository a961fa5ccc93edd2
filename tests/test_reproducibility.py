"""What `docs/reproducibility.md` says a run does, row by row, and the tests that hold it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

HELD = {
    "SIGINT, SIGTERM": (
        "experiment/run/test_signals.py::test_signals_become_requests_and_handlers_return",
        "experiment/run/test_signals.py::test_a_process_that_is_busy_ends",
        "experiment/run/test_signals.py::"
        "test_a_run_that_is_stopped_while_it_builds_leaves_what_resumes",
        "experiment/run/test_resume.py::test_sigterm_says_how_to_go_on",
        "experiment/launch/test_pool.py::test_a_second_signal_leaves_no_process",
    ),
    "SIGKILL, power cut": (
        "experiment/run/test_kills.py::test_by_the_command",
        "records/test_checkpoints.py::test_a_write_that_fails_leaves_the_one_before_good",
    ),
    "a second process on the same run": (
        "records/test_files.py::test_a_folder_is_held_by_one_process",
    ),
    "a file system without locks": (
        "records/test_files.py::test_where_no_file_can_be_locked_work_goes_on_with_a_warning",
    ),
    "`steps.csv` removed or cut after the checkpoint": (
        "callbacks/test_step_record.py::test_what_followed_the_checkpoint_is_written_again",
    ),
    "a link in place of a file of the run": (
        "records/test_files.py::test_a_file_replaces_a_link_and_not_its_target",
        "callbacks/test_step_record.py::test_a_link_is_replaced_and_what_it_names_is_not_written",
    ),
    "disk full, folder gone or read-only": (
        "experiment/run/test_full_disk.py::test_a_full_disk_is_told_and_a_run_goes_on",
        "test_cli.py::test_a_folder_that_is_removed_in_mid_run",
        "test_cli.py::test_an_output_folder_that_cannot_be_written",
    ),
    "a loss or gradient that is not finite": (
        "learner/test_skipped_steps.py::test_a_bad_batch_changes_nothing",
    ),
    "ten such steps in a row": (
        "commands/test_train.py::test_what_ends_a_seed_is_one_sentence",
        "learner/test_skipped_steps.py::"
        "test_after_ten_in_a_row_the_fit_fails_and_the_next_one_learns",
    ),
}  # fmt: skip
"""By the first cell of each row: the tests, below this folder."""


def test_every_row_is_held_by_tests_that_are_there():
    text = (ROOT / "docs/reproducibility.md").read_text()
    table = text.split("| event | what the run does |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [line.removeprefix("| ").partition(" | ")[0] for line in table.splitlines()]
    assert rows == list(HELD)
    for tests in HELD.values():
        for test in tests:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(), re.M), test

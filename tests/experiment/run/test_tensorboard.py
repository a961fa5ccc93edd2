"""The event files of a run have values in them, which are read back here."""

import pytest

from tests.tiny import scalars


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from absl import flags
    from absl.testing import flagsaver

    from nccl_tf.cli import main
    from nccl_tf.experiment.config.flags import define_flags

    folder = tmp_path_factory.mktemp("run")
    define_flags(flags.FLAGS)
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
        main(
            ["run.py", "--method=finetune", "--dataset=split_digits", "--max_tasks=2",
             "--tensorboard", "--record_every=10", "--progress=none", f"--output_dir={folder}"]
        )  # fmt: skip
    assert not end.value.code
    return next(folder.rglob("result.json")).parent


def test_steps_of_each_task_have_values(run):
    for task in ("task1", "task2"):
        values = scalars(run / "tensorboard" / task / "train")
        assert list(values["batch_loss"])[:2] == [10, 20]
        assert all(loss > 0 for loss in values["batch_loss"].values())


def test_accuracies_after_each_task_have_values(run):
    values = scalars(run / "tensorboard" / "tasks")
    assert set(values) == {"accuracy/task1", "accuracy/task2", "average_accuracy", "forgetting"}
    assert list(values["accuracy/task1"]) == [1, 2] and list(values["accuracy/task2"]) == [2]
    first, last = (values["accuracy/task1"][step] for step in (1, 2))
    assert values["forgetting"] == {2: pytest.approx(first - last)}
    mean = (last + values["accuracy/task2"][2]) / 2
    assert values["average_accuracy"] == {1: pytest.approx(first), 2: pytest.approx(mean)}

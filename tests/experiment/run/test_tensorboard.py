"""The event files of a run have values in them, which are read back here."""

import pytest

from nccl_tf.experiment.run.tensorboard import TensorBoardLog, events_folder
from nccl_tf.session.state import Place
from tests.tiny import scalars


def train(folder, *argv):
    from nccl_tf.cli import main

    with pytest.raises(SystemExit) as end:
        main(
            ["run.py", "--method=finetune", "--dataset=split_digits", "--tensorboard",
             "--progress=none", f"--output_dir={folder}", *argv]
        )  # fmt: skip
    assert not end.value.code
    (events,) = next(folder.rglob("tensorboard")).iterdir()
    return events


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"), "--max_tasks=2", "--record_every=10")


def test_a_short_task_has_the_values_of_its_end(tmp_path):
    folder = train(tmp_path, "--max_tasks=1", "--record_every=50") / "task1" / "train"
    assert list(scalars(folder)["batch_loss"]) == [29]


@pytest.mark.parametrize("place", [Place(), Place(0, 0, 190)])
def test_the_calls_of_a_resumed_task_are_those_of_the_whole(tmp_path, place):
    log = TensorBoardLog(tmp_path, None, 50, [230], 1)
    log.before_task(place)
    assert log.update_freq == 50


def test_steps_of_each_task_have_values(run):
    for task in ("task1", "task2"):
        values = scalars(run / task / "train")
        assert list(values["batch_loss"])[:2] == [10, 20]
        assert all(loss > 0 for loss in values["batch_loss"].values())


def test_accuracies_after_each_task_have_values(run):
    values = scalars(run / "tasks")
    assert set(values) == {"accuracy/task1", "accuracy/task2", "average_accuracy", "forgetting"}
    assert list(values["accuracy/task1"]) == [1, 2] and list(values["accuracy/task2"]) == [2]
    first, last = (values["accuracy/task1"][step] for step in (1, 2))
    assert values["forgetting"] == {2: pytest.approx(first - last)}
    mean = (last + values["accuracy/task2"][2]) / 2
    assert values["average_accuracy"] == {1: pytest.approx(first), 2: pytest.approx(mean)}


def test_a_run_that_begins_again_has_a_new_folder_of_events(tmp_path):
    first = events_folder(tmp_path / "tensorboard", goes_on=True)
    first.mkdir(parents=True)
    assert events_folder(tmp_path / "tensorboard", goes_on=True) == first
    again = events_folder(tmp_path / "tensorboard", goes_on=False)
    assert again.parent == first.parent and again.name > first.name

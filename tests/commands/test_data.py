"""The command `data`: what it prints, the sheet that it draws and its exit code."""

import numpy as np
import pytest
from PIL import Image

from nccl_tf.commands.data import run
from nccl_tf.errors import UserError
from tests.experiment.config.test_flags import parsed
from tests.reports.test_dataset import image_set, images


def data(*argv):
    return run(parsed("--dataset=split_digits", *argv)[1])


def test_it_describes_the_digits(tmp_path, capsys):
    assert data("--seeds=0,1", f"--figure_dir={tmp_path / 'new'}") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert "1437 training and 360 test images" in text
    assert "Seed 1 (multi-head): 5 tasks, 0 held out for tuning" in text
    assert Image.open(tmp_path / "new" / "data_digits.png").size == (1000, 1000)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("breast_cancer", "455 training and 114 test examples of 2 classes"),
        ("diabetes", "task 5: 83 training examples, numbers to predict"),
    ],
)
def test_it_describes_tables(name, said, tmp_path, capsys):
    assert run(parsed(f"--dataset={name}", f"--figure_dir={tmp_path}")[1]) == 0
    text = capsys.readouterr().out
    assert said in text and "values of float32 an example" in text
    assert not list(tmp_path.iterdir())


def test_it_ends_with_1_where_data_are_faulty(tmp_path, capsys, monkeypatch):
    bad = image_set(images([0] * 9), images([0], seed=1))
    monkeypatch.setattr("nccl_tf.commands.data.load_images", lambda *args: bad)
    assert data(f"--figure_dir={tmp_path}") == 1
    assert "fault: no training images of the classes 1, 2" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    small = image_set(images(np.arange(10)), images(np.arange(10), seed=1))
    monkeypatch.setattr("nccl_tf.commands.data.load_images", lambda *args: small)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another --figure_dir"):
        data(f"--figure_dir={tmp_path / 'file'}")

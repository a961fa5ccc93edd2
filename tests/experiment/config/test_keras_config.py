"""What Keras is set to for a whole process is part of a run's settings where it is unusual."""

import json
import subprocess
import sys

import keras
import pytest

from nccl_tf.experiment.config.resolve import resolve

DIGEST = "from nccl_tf.experiment.config.resolve import resolve; print(resolve({}).digest())"
"""Without Keras, which says what it is set to where it is imported."""


@pytest.fixture
def as_it_was():
    names = ("floatx", "epsilon", "image_data_format", "max_epochs", "max_steps_per_epoch")
    before = {name: getattr(keras.config, name)() for name in names}
    yield
    for name, value in before.items():
        getattr(keras.config, f"set_{name}")(value)


def digest_of_a_process(monkeypatch, folder, written, **environment) -> str:
    folder.mkdir()
    (folder / "keras.json").write_text(json.dumps(written))
    for name, value in {"KERAS_HOME": str(folder), **environment}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


@pytest.mark.usefixtures("as_it_was")
def test_the_hash_knows_it_where_it_is_unusual_whether_keras_is_imported_or_not(
    monkeypatch, tmp_path
):
    usual = resolve({})
    assert usual.keras is None
    written = {"floatx": "float32", "image_data_format": "channels_last", "backend": "tensorflow"}
    assert digest_of_a_process(monkeypatch, tmp_path / "usual", written) == usual.digest()
    digests = {usual.digest()}
    for number, (name, value) in enumerate(
        {"floatx": "float64", "image_data_format": "channels_first", "epsilon": 1e-3}.items()
    ):
        getattr(keras.config, f"set_{name}")(value)
        digests.add(resolve({}).digest())
        written[name] = value
        folder = tmp_path / str(number)
        assert digest_of_a_process(monkeypatch, folder, written) == resolve({}).digest()
    assert len(digests) == 4
    keras.config.set_max_epochs(2)
    limited = digest_of_a_process(monkeypatch, tmp_path / "x", written, KERAS_MAX_EPOCHS="2")
    assert limited == resolve({}).digest() not in digests

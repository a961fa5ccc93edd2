"""The benchmark of learners on devices: which rows it makes, and what goes on where it ended."""

import pytest

from benchmarks import on_device


@pytest.fixture(params=["of a checkout", None])
def asked(request, monkeypatch):
    """What is exported and timed by a commit or none, which writes files and takes no time."""
    asked = []

    def exported(key, path, wheels):
        asked.append(("export", *key))
        path.write_bytes(b"file")
        return {"bytes": 4}

    def timed(key, path, wheels):
        asked.append(("times", *key))
        return {"device_ms": 1.0, "commit": request.param}

    monkeypatch.setattr(on_device, "package_source", lambda: {"commit": request.param})
    monkeypatch.setattr(on_device, "exported", exported)
    monkeypatch.setattr(on_device, "timed", timed)
    return asked


def test_files_are_exported_once_and_timed_once(asked, tmp_path):
    rows = tmp_path / "rows.jsonl"
    words = [f"--files={tmp_path / 'files'}", f"--rows={rows}", "--networks=conv"]
    on_device.main([*words, "--methods=derpp,agem"])
    assert asked == [("export", "derpp", "conv"), ("export", "agem", "conv")]
    asked.clear()
    on_device.main([*words, "--methods=der,derpp"])
    assert asked == [("export", "der", "conv")]
    asked.clear()
    for _ in range(2):
        on_device.main([*words, "--times"])
    assert asked == [("times", name, "conv") for name in ("der", "derpp", "agem")]
    found = on_device.read_rows(rows)
    assert list(found) == [(name, "conv") for name in ("der", "derpp", "agem")]
    assert all(row["export"] == {"bytes": 4} and row["times"] for row in found.values())


def test_a_row_of_real_weights_asks_for_their_wheel(asked, tmp_path):
    words = [f"--files={tmp_path}", f"--rows={tmp_path / 'rows'}", "--networks=efficientnet"]
    on_device.main(words)
    assert not asked
    on_device.main([*words, f"--wheels={tmp_path}"])
    assert asked == [("export", "er_reservoir", "efficientnet")]


def test_after_its_seconds_no_row_begins(asked, tmp_path):
    on_device.main([f"--files={tmp_path}", f"--rows={tmp_path / 'rows'}", "--seconds=-1"])
    assert not asked


@pytest.mark.parametrize("name", on_device.METHODS)
def test_a_learner_is_made_for_ten_classes(name):
    learner = on_device.compiled((name, "mlp"), None)
    images, labels = on_device.examples(learner.network, 20)
    assert learner.num_classes == on_device.CLASSES
    assert images.shape == (20, 28, 28, 1) and set(labels) <= set(on_device.TASKS[0])

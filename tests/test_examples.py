"""Every example runs as it stands, and does what it is there to show."""

import json
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

import nccl_tf
from nccl_tf.errors import UserError

FOLDER = Path(__file__).parents[1] / "examples"
SHOWN = {
    "own_data": "after classes 2, 6: ",
    "own_network": "accuracy on each task: ",
    "callbacks": "task 1: best after epoch ",
    "comparing_methods": "NCCL ",
    "pretrained_backbone": "fine-tuned: accuracy on each task ",
    "learn_on_device": "with what the device has learned: ",
    "text": "replay: accuracy on each task ",
    "tabular_regression": "replay: mean absolute error on each group ",
    "growing_classes": "ring: 10 classes, ",
    "update_a_trained_model": "the same, as plain Keras ",
}
LONG = {
    "pretrained_backbone",
    "tabular_regression",
    "growing_classes",
    "update_a_trained_model",
}
SHORT = {
    "comparing_methods": (1, 2, "NCCL"),
    "pretrained_backbone": ("--tasks=2",),
}
"""Arguments with which an example takes less time."""


def run(name, monkeypatch, capsys, *argv):
    monkeypatch.setattr(sys, "argv", [name, *map(str, argv)])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.pages
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.nightly) if n in LONG else n for n in SHOWN],
)
def test_an_example_runs(name, monkeypatch, capsys, tmp_path):
    for folder in (working := tmp_path / "working", kept := tmp_path / "kept"):
        folder.mkdir()
    monkeypatch.chdir(working)
    monkeypatch.setattr(tempfile, "tempdir", str(kept))
    printed = run(name, monkeypatch, capsys, *SHORT.get(name, ()))
    assert SHOWN[name] in printed
    assert os.listdir(working) == []
    if name == "update_a_trained_model":
        right = {
            line[:31].strip(): [float(share) for share in re.findall(r"([0-9.]+)% ±", line)]
            for line in printed.splitlines()[1:]
        }
        old = {name: shares[0] for name, shares in right.items()}
        assert old["new images alone: LwF, present"] > old["new images alone: finetune"] + 30
        assert min(old["196 old images: ER"], old["196 old images: DER++"]) > 70
        assert old["all images: retrained"] > 85
        assert right["the same, as plain Keras"] == right["all images: retrained"]
    if name == "learn_on_device":
        before, after = (
            [float(share) for share in re.findall(r"([0-9.]+)%", line)]
            for line in printed.splitlines()
            if "%" in line
        )
        assert before[2] == 0 and after[2] > 80 and after[0] > 50
    if name == "callbacks":
        (folder,) = kept.glob("callbacks_*")
        assert (folder / "epochs.csv").stat().st_size and (folder / "steps.csv").stat().st_size
        assert list((folder / "tensorboard").rglob("events*"))


@pytest.mark.pages
@pytest.mark.seconds(20)  # XLA compiles steps
def test_the_method_of_ones_own_does_what_every_learner_must(restored_tables):
    names = runpy.run_path(str(FOLDER / "own_method.py"))
    report = nccl_tf.check_learner(names["MyDERpp"], arguments={"logits_weight": 0.25})
    assert {each.outcome for each in report.verdicts} == {"held"}


@pytest.mark.pages
@pytest.mark.nightly
def test_an_image_classifier_is_updated(monkeypatch, capsys):
    try:
        nccl_tf.load_stream("tfds:cifar10", num_tasks=5, head="single")
    except UserError as error:
        pytest.skip(f"CIFAR-10 is not here: {error}")
    printed = run("update_on_cifar10", monkeypatch, capsys)
    tuned, replayed = (float(p) for p in re.findall(r"before, ([0-9.]+)% ", printed))
    assert replayed > tuned + 15


@pytest.mark.pages
@pytest.mark.nightly
@pytest.mark.seconds(600)
@pytest.mark.parametrize("seed", range(3))
def test_a_language_model_forgets_its_first_corpus_less_with_a_memory(seed, capsys):
    pytest.importorskip("keras_hub", reason="needs the extra hub: pip install keras-hub")
    results = runpy.run_path(str(FOLDER / "language_model.py"))["main"](seed)
    assert capsys.readouterr().out.count("forgetting") == len(results) == 4
    forgotten = {name: result.forgetting for name, result in results.items()}
    assert forgotten["ER"] < forgotten["fine-tuning"] / 2
    assert forgotten["ER, LoRA"] < forgotten["fine-tuning, LoRA"]
    assert results["ER"].average_accuracy < results["fine-tuning"].average_accuracy
    # Every corpus is learned.
    for result in results.values():
        assert (np.diag(result.matrix)[1:] < result.initial[1:]).all()


@pytest.mark.pages
def test_a_folder_of_images(monkeypatch, capsys, tmp_path):
    random = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 5)):
        for label, name in enumerate(("ant", "bee", "cat", "dog")):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                image = random.integers(0, 60, (32, 32, 3)) + 60 * label
                Image.fromarray(image.astype(np.uint8)).save(tmp_path / part / name / f"{i}.png")
    out = run("own_data", monkeypatch, capsys, tmp_path)
    assert out.count("after classes") == 4  # of one class each


@pytest.mark.pages
def test_a_table(monkeypatch, capsys):
    assert run("own_data", monkeypatch, capsys, "table").count("after classes 0, 1, 2:") == 3


@pytest.mark.pages
@pytest.mark.nightly
def test_the_notebook_runs_and_has_its_pictures(tmp_path, monkeypatch):
    notebook = nbformat.read(FOLDER / "tour.ipynb", as_version=4)
    python_path = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", python_path)
    # A command that ran in this process has set it, and the kernel would draw no pictures.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    kept = json.dumps(notebook.cells).count("image/png")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    assert json.dumps(notebook.cells).count("image/png") == kept == 3

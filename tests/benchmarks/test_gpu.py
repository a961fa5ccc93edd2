"""The GPU benchmark: what it says without a GPU, its sides on a CPU, and the share in kernels."""

import numpy as np
import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks import gpu
from tests.tiny import IMAGE_SHAPE

TINY = gpu.Network(gpu.nccl_tf.networks.mlp, IMAGE_SHAPE, 2, (8,), 0, 3)


def test_without_a_gpu_it_says_so_in_one_line_and_ends(capsys, monkeypatch):
    monkeypatch.setattr(gpu.tf.config, "list_physical_devices", lambda kind: [])
    gpu.main(["--networks=dense"])
    said = "TensorFlow finds no GPU on this machine: there is nothing to measure\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("method", gpu.METHODS)
def test_the_memory_holds_what_a_method_reads_at_any_batch(method):
    for batch in (2, 100):  # more than the ended tasks have classes
        slots = gpu.slots_for(TINY, batch)
        name, _ = gpu.METHODS[method]
        memory = gpu.full_memory(name, TINY.heads, TINY.shape, TINY.classes, slots)
        assert int(memory.readable_count()) >= 5 * batch


def test_a_side_learns_the_last_task():
    call = gpu.ours(TINY, "nccl_ring", 2, 3, xla=False)
    call()
    assert gpu.kernel_share(call) is None


def test_a_table_has_every_side_that_there_is(capsys, monkeypatch):
    asked = []

    def ours(network, name, batch, steps, xla):
        asked.append((name, steps, xla))
        return lambda: None

    monkeypatch.setattr(gpu, "ours", ours)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    gpu.print_table("tiny", TINY._replace(hidden=()), list(gpu.METHODS)[:3], 2, 1, "cpu")
    assert asked == [
        (name, steps, xla)
        for name in ("er_ring", "nccl_ring")  # rows are a way of dense networks
        for steps, xla in ((3, False), (30, True))
    ]
    head, _, er, _ = [x for x in capsys.readouterr().out.splitlines() if x.startswith("|")]
    assert head.startswith("| method | plain | chunk | eager PyTorch | PyTorch, one CUDA graph |")
    assert er.startswith("| er_ring | 0.0") and er.split(" | ")[3:5] == ["-", "-"]


def test_a_row_of_this_device_and_commit_is_measured_once(tmp_path, capsys, monkeypatch):
    measured = []

    def compare(network, name, batch, rounds, device, turns):
        measured.append(name)
        return {"plain": 1.0, "chunk": 0.25}, {"first chunk, s": 2.0}

    monkeypatch.setattr(gpu, "compare", compare)
    path = tmp_path / "made" / "gpu.jsonl"
    for methods in (["er_ring"], ["er_ring", "nccl_ring"]):
        gpu.print_table("dense", TINY, methods, 10, 1, "cpu", gpu.Rows(path, torch=False))
    assert measured == ["er_ring", "nccl_ring"]
    assert "| er_ring | 1.000 | 0.250 | - | - | 2.00 | - | - |" in capsys.readouterr().out

    with_torch = gpu.Rows(path, torch=True)
    key = {"network": "dense", "batch": 10, "method": "er_ring", "tensorfloat32": True}
    found = gpu.Rows(path, torch=False)
    assert found.find(key | {"tensorfloat32": found.path == path}) is not None
    assert with_torch.find(key) is None  # it lacks PyTorch's sides
    found.source = found.source | {"commit": "another"}
    assert found.find(key) is None


def test_kernels_of_streams_count_once_where_they_overlap():
    space = xplane_pb2.XSpace()
    space.planes.add(name="/host:CPU").lines.add(name="Stream").events.add(duration_ps=10**12)
    plane = space.planes.add(name="/device:GPU:0")
    for name, start_ns, spans in (
        ("Stream #1(Compute)", 1000, [(0, 500_000), (600_000, 100_000)]),
        ("Stream #2(MemcpyD2H)", 1000, [(400_000, 200_000)]),
        ("TensorFlow Ops", 1000, [(0, 9_000_000)]),
    ):
        line = plane.lines.add(name=name, timestamp_ns=start_ns)
        for offset, length in spans:
            line.events.add(offset_ps=offset, duration_ps=length)
    np.testing.assert_allclose(gpu.kernel_seconds(space), 700_000e-12)


def test_what_spans_cover_together():
    assert gpu.covered([(5, 7), (0, 2), (1, 3), (6, 6)]) == 5
    assert gpu.covered([]) == 0

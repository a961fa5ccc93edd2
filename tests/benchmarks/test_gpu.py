"""The GPU benchmark: what it says without a GPU, its sides on a CPU, and the share in kernels."""

import numpy as np
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks import gpu
from tests.tiny import IMAGE_SHAPE

TINY = gpu.Network(gpu.nccl_tf.networks.mlp, IMAGE_SHAPE, 2, (8,), 0, 3)


def test_without_a_gpu_it_says_so_in_one_line_and_ends(capsys, monkeypatch):
    monkeypatch.setattr(gpu.tf.config, "list_physical_devices", lambda kind: [])
    gpu.main(["--networks=dense"])
    said = "TensorFlow finds no GPU on this machine: there is nothing to measure\n"
    assert capsys.readouterr().out == said


def test_a_side_learns_the_last_task_at_any_batch():
    for batch in (2, 100):  # more than the ended tasks have classes
        heads = TINY.heads
        memory = gpu.full_ring(heads, TINY.shape, gpu.slots_for(TINY, batch))
        assert int(memory.num_readable.numpy()) >= batch
    call = gpu.ours(TINY, "nccl", 2, xla=False)
    call()
    assert gpu.kernel_share(call) is None


def test_a_comparison_prints_every_side_it_has(capsys, monkeypatch):
    monkeypatch.setitem(gpu.NETWORKS, "tiny", TINY)
    monkeypatch.setattr(gpu, "ours", lambda *args: lambda: None)
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    gpu.compare("tiny", ["er"], 2, 1, "cpu")
    printed = capsys.readouterr().out
    assert "er, plain" in printed and "er, XLA / plain" in printed and "PyTorch" not in printed


def test_a_cell_without_data_says_why(capsys, tmp_path):
    gpu.run_cell("T7", {}, {"data_dir": str(tmp_path)})
    assert capsys.readouterr().out.startswith("The cell of T7 did not run: ")


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

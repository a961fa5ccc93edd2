"""Fuzzing of the readers, guided by coverage: a command of its own, which needs Atheris.

    pip install atheris
    python -m tests.fuzz pickle 100000

runs a reader of tests/readers.py on so many inputs, beginning with its files in tests/corpus and
with whole ones. It ends with code 0, or stops at the first input that raises anything but a
UserError, takes more than 2 seconds or 500 MB, and writes that input into tests/corpus.
"""

import hashlib
import io
import json
import os
import pickle
import resource
import sys
import tempfile
import time
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["nccl_tf", "pickle", "json", "numpy.lib", "zipfile"]):
    from tests.readers import READERS, read_or_refuse

import numpy as np
import PIL.Image

from nccl_tf.experiment.config.resolve import resolve
from tests.experiment import sample

CORPUS = Path(__file__).parent / "corpus"
MOST_SECONDS, MOST_BYTES = 2, 500 * 10**6


def seeds(reader: str) -> list[bytes]:
    """Whole inputs of a reader."""
    record = json.dumps(sample.record()).encode()
    arrays = {"images": np.zeros((2, 3), np.uint8), "labels": ["a", "b"], "class_dict": {"a": [0]}}
    images = zlib.crc32(bytes(16)), bytes(16)
    checkpoint, pictures = io.BytesIO(), []
    np.savez(checkpoint, meta=np.frombuffer(b'{"task": 1}', np.uint8), **{"a/x": np.zeros(3)})
    for kind in ("PNG", "JPEG", "BMP"):
        pictures.append(io.BytesIO())
        PIL.Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(pictures[-1], kind)
    return {
        "pickle": [pickle.dumps(arrays, protocol) for protocol in (0, 2, 4, 5)],
        "record": [record],
        "lines": [record.replace(b"\n", b"") + b"\n{}\n"],
        "checkpoint": [checkpoint.getvalue()],
        "flags": [b"--method=er_ring\n# no\n--hidden=8,4\n--sweep=learning_rate:0.1,0.2\n"],
        "run": [json.dumps(_run()).encode()],
        "images": [b'{"of": {}, "shapes": [[1, 2, 2, 1], [1, 2, 2, 1]], "crc32": %d}\n%s' % images],
        "image": [picture.getvalue() for picture in pictures],
        "steps": [
            b"step,loss_mean,lambda_mean,alpha_h_mean,beta_h_mean\n"
            b"50,1.5,-2e-05,0.1,0.1\n100,nan,,0.2,0\n150,0.5,inf,0.1,0.05\n"
        ],
    }[reader]


def _run() -> dict[str, object]:
    flags = {"method": "er_ring", "hidden": [8], "delta": None, "seeds": [0]}
    settings = resolve({**flags, "hidden": (8,)}).as_json()
    return {"seed": 0, "given": flags, "settings": settings}


def main(reader: str, runs: str) -> None:
    """Fuzz a reader."""
    folder = Path(tempfile.mkdtemp())
    path, begin = folder / "input", folder / "seeds"
    begin.mkdir()
    for content in (*seeds(reader), *(p.read_bytes() for p in (CORPUS / reader).glob("*"))):
        (begin / hashlib.sha256(content).hexdigest()).write_bytes(content)
        path.write_bytes(content)
        read_or_refuse(reader, path)  # The first one imports what it needs.
    worst = {"seconds": 0.0, "inputs": 0}

    def read_one(content: bytes) -> None:
        path.write_bytes(content)
        peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            read_or_refuse(reader, path)
            seconds = time.process_time() - start
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak)
            assert seconds < MOST_SECONDS, f"{seconds:.1f} s"
            assert grown < MOST_BYTES, f"{grown:,} bytes"
        except BaseException:
            name = hashlib.sha256(content).hexdigest()[:12]
            (CORPUS / reader / name).write_bytes(content)
            raise
        worst["seconds"], worst["inputs"] = max(worst["seconds"], seconds), worst["inputs"] + 1
        if worst["inputs"] % 10_000 == 0:
            print(
                f"{reader}: {worst['inputs']} inputs, slowest {worst['seconds']:.3f} s", flush=True
            )

    os.chdir(folder)
    (CORPUS / reader).mkdir(exist_ok=True)
    # What exhausts memory ends the process, without an exception.
    argv = [sys.argv[0], f"-runs={runs}", "-max_len=4096", "-verbosity=0", str(begin)]
    argv += [f"-artifact_prefix={CORPUS / reader}/", "-rss_limit_mb=3000", "-timeout=60"]
    atheris.Setup(argv, read_one)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in READERS:
        sys.exit(f"expected a reader ({', '.join(READERS)}) and a number of inputs")
    main(*sys.argv[1:])

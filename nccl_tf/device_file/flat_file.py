"""A finished LiteRT file: what is in it, and what must not be."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nccl_tf.device_file.runtime import schema
from nccl_tf.errors import UserError

METADATA = "nccl_tf"
_IDENTIFIER = b"TFL3"


class FlatFile:
    """The model in a LiteRT file.

    Args:
        content: The file's bytes.
    """

    def __init__(self, content: bytes):
        self._schema = schema()
        model = self._schema.Model.GetRootAs(content, 0)
        self.model = self._schema.ModelT.InitFromObj(model)

    @property
    def operations(self) -> Counter[str]:
        """How often each operation occurs; custom ones by their own names."""
        kinds = {n: k for k, n in vars(self._schema.BuiltinOperator).items() if isinstance(n, int)}
        codes = []
        for code in self.model.operatorCodes:
            number = max(code.builtinCode, code.deprecatedBuiltinCode)
            codes.append(code.customCode.decode() if code.customCode else kinds[number])
        return Counter(
            codes[operator.opcodeIndex]
            for graph in self.model.subgraphs
            for operator in graph.operators or ()
        )

    def custom(self) -> list[str]:
        """Names of the operations that the runtime does not have by itself, Flex ones too."""
        return sorted(
            code.customCode.decode() for code in self.model.operatorCodes if code.customCode
        )

    def repeating_branches(self) -> list[str]:
        """Names of branches of conditionals that return one tensor twice, or one they received.

        LiteRT 2.3 returns rubbish there, in both interpreters and without a word.
        """
        found = []
        for graph in self.model.subgraphs:
            for operator in graph.operators or ():
                options = operator.builtinOptions
                for kind in ("thenSubgraphIndex", "elseSubgraphIndex"):
                    number = getattr(options, kind, None)
                    if number is not None and _repeats(self.model.subgraphs[number]):
                        found.append(_name(self.model.subgraphs[number]))
        return found

    def with_metadata(self, values: Mapping[str, Any]) -> bytes:
        """The file with values of JSON in its metadata."""
        import flatbuffers
        import numpy as np

        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(json.dumps(values).encode(), np.uint8)
        entry = self._schema.MetadataT()
        entry.name, entry.buffer = METADATA, len(self.model.buffers)
        self.model.buffers.append(buffer)
        self.model.metadata = [*(self.model.metadata or ()), entry]
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), _IDENTIFIER)
        return bytes(builder.Output())

    def metadata(self) -> Mapping[str, Any]:
        """The values that `with_metadata` has written.

        Raises:
            UserError: There are none.
        """
        for entry in self.model.metadata or ():
            if entry.name.decode() == METADATA:
                return json.loads(bytes(self.model.buffers[entry.buffer].data))
        raise UserError("no metadata of nccl_tf")


def _repeats(graph: Any) -> bool:
    outputs = [] if graph.outputs is None else list(graph.outputs)
    inputs = [] if graph.inputs is None else list(graph.inputs)
    return len(set(outputs)) < len(outputs) or bool(set(outputs) & set(inputs))


def _name(graph: Any) -> str:
    return graph.name.decode() if graph.name else "without a name"

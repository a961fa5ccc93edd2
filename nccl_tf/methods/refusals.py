"""Why options have no meaning for methods: for the classes, and for the table that names them.

Without TensorFlow, which the command does not import to refuse a flag.
"""

from collections.abc import Mapping
from types import MappingProxyType

_WHOLE_TASKS = "takes gradients on whole tasks of its memory; dark replay is of drawn batches"
_EDITED = {"dark": "edits its examples, and the logits kept are those of the unedited ones"}
_WITHOUT_STEPS = {
    "stream_mask": "takes a class by statistics of its features, and learns from no softmax",
    "average_weights": "learns without a gradient step, and leaves its weights alone",
    "diagnostics": "learns without a gradient step, and leaves its weights alone",
    "rate_decay": "learns without a gradient step, and has no use for a rate",
    "optimizer": "learns without a gradient step, and has no use for an optimizer",
    "schedule": "learns without a gradient step, and has no use for a rate",
    "augment": "takes the features of an image as it is",
}

REFUSALS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "clser": {"average_weights": "predicts with an average of its own already"},
        "cn_dpm": {
            "average_weights": "builds its experts one after the other, each trained by itself",
            "augment": "has networks of its own, which also model the density of images",
            "optimizer": "trains its experts by Adam, and takes the rate alone",
            "schedule": "trains its experts by a decay of its own",
            "stream_mask": "trains its experts one by one, each with classes of its own",
        },
        "derpp": {"dark": "has der_alpha and der_beta, with a draw of its own for each"},
        "er_gmed": _EDITED,
        "gdumb": {
            "average_weights": "trains its network from scratch at every task's end",
            "rate_decay": "trains from scratch at every task's end, by a schedule of its own",
            "schedule": "trains from scratch at every task's end, by a schedule of its own",
            "stream_mask": "takes no step on the stream",
            "dark": "learns its memory with a fresh network, to which kept logits mean nothing",
        },
        "gem": {"dark": _WHOLE_TASKS},
        "gss_greedy": {
            "dark": "fills its memory by gradients of the labels' loss",
            "schedule": "takes several updates in a step",
            "batch_norm": "takes steps on stream and memory in turns",
        },
        "icarl": {
            "average_weights": "predicts by mean features of exemplars under the plain weights",
            "stream_mask": "takes every class for itself, without a softmax",
            "dark": "distils the outputs of the network before the task into every loss",
        },
        "mc_sgd": {
            "average_weights": "merges its weights at every task's end, where no step leads",
            "dark": "reads its memory when a task has ended, to merge weights",
            "batch_norm": "learns the stream alone until a task has ended",
        },
        "mer": {"batch_norm": "passes single examples, for which it has mer_batch_norm"},
        "mir_gmed": _EDITED,
        "ncm": _WITHOUT_STEPS,
        "orthog_subspace": {"dark": _WHOLE_TASKS},
        "ranpac": _WITHOUT_STEPS,
        "slda": _WITHOUT_STEPS,
        "supsup": {
            "average_weights": "learns a mask for each task, on weights that never change",
            "stream_mask": "finds an example's task by the outputs of all classes",
        },
    }
)
"""By the names of a method and an option, the end of a sentence that begins with the method's."""

"""The named choices of the package, each listed once, for constructors, flags and messages."""

HEADS = ("single", "multi")
"""One head for all classes, or a head for each task."""

STREAM_KINDS = ("permuted", "split", "rotated", "domain")
"""Every task has all classes, its pixels permuted; classes of its own; all classes, its images
rotated; or all classes, its inputs from a domain of its own."""

PERIODS = ("day", "week", "month", "quarter", "year")
"""Of the calendar, that dates are cut into; weeks begin on Monday."""

ANGLES = ("ordered", "any")
"""Of a rotated stream's tasks: each in its own part of the half turn, or anywhere in it."""

MASKS = ("own", "union")
"""Logits of each example's own task, or of all tasks in the batch."""

NEW_CLASSES = ("present", "task")
"""Masks that leave out the classes of earlier tasks."""

STREAM_MASKS = ("all", *NEW_CLASSES, "seen")
"""Classes of a single head that the stream loss's softmax runs over: all of them, those of the
stream batch, those of the open task so far, or those of the stream so far."""

COVARIANCES = ("shared", "class")
"""Of features: one of all classes, or one of each."""

RESERVOIR_RULES = ("exact", "off_by_one")
"""Draws of the reservoir: of Vitter (1985), or of the paper's code base."""

STORES = ("first_epoch", "every_epoch")
"""When a memory stores an example of a fit: once, in its first pass, or in each of its passes."""

CONV_INITS = ("reference", "he")
"""First weights of convolutions."""

STEP_SCHEDULES = ("cosine", "piecewise")
"""Learning rates that fall within a task and begin anew with the next one."""

SCHEDULES = ("constant", "inverse_sqrt", *STEP_SCHEDULES)
"""Learning rates over the tasks."""

AUGMENTATIONS = ("flip", "crop")
"""Random changes of training images."""

TASKS = ("evaluated", "tuning")
"""Training data of a run: the evaluated tasks, or those held out for tuning."""

TENSORFLOAT32 = "tensorfloat32"
PRECISIONS = ("float32", TENSORFLOAT32, "mixed_bfloat16", "mixed_float16")
"""dtype policies of Keras, and float32 with the products that newer NVIDIA GPUs round."""

AUTO, ON, OFF = XLA = ("auto", "true", "false")
"""Whether XLA compiles the steps: by the learner's rule, always, or never."""

DISTRIBUTIONS = ("mirrored",)
"""Strategies of tf.distribute."""

DIAGNOSTICS = ("off", "subset", "full")
"""How far `ForgettingDiagnostics` measures."""

PROGRESS_MODES = ("bar", "plain", "json", "none")
"""How progress is printed."""

REPORT_FORMATS = ("html", "latex", "tabular", "csv", "means", "parquet")
"""Files of the command `report`."""

BATCH_NORMS = ("separate", "joint", "frozen")
"""Statistics that memory and stream batches are normalised with."""

GRAD_SCOPES = ("all", "layer")
"""Scope of NCCL's inner product and norms: all variables together, or each by itself."""

BATCH_NORM_ORDERS = ("memory_first", "memory_last")
"""Order of separate batches through batch norm; the last one moves the averages last."""

ER_WEIGHTINGS = ("joint_mean", "sum_of_means")
"""Weights of stream and memory examples in the loss of experience replay."""

FIGURES = ("2", "bound", "steps", "accuracy")
"""Pictures of the command `figures`."""

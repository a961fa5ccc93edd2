"""CN-DPM (Lee et al., ICLR 2020, "A neural Dirichlet process mixture model for task-free continual
learning")."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.memories.short_term import ShortTermMemory
from nccl_tf.methods.cn_dpm.assignment import assign, log_joint
from nccl_tf.methods.cn_dpm.experts import ExpertOutputs, Experts
from nccl_tf.methods.cn_dpm.training import PartTraining, Sleep
from nccl_tf.methods.rows import cn_dpm as rows
from nccl_tf.rng import seeded

_DEFAULTS = {
    "mlp": {
        "log_alpha": -400.0, "vae_steps": 8000, "classifier_steps": 2000,
        "vae_learning_rate": 4e-4, "awake": 1.0,
    },
    "conv": {
        "log_alpha": -450.0, "vae_steps": 4000, "classifier_steps": 1000,
        "vae_learning_rate": 2e-4, "awake": 0.1,
    },
}  # fmt: skip
"""Of the released code for MNIST and CIFAR-10; "awake" is the factor on step sizes after sleep."""
_VAE_STEPS_PER_SLOT = 16


@keras.saving.register_keras_serializable(package="nccl_tf")
class CNDPM(Learner):
    r"""A mixture that grows an expert for examples that its experts do not explain.

    An example belongs to expert k in proportion to $N_k p_k(x) p_k(y \mid x)$, with $N_k$ the
    number of examples that it had, and is new in proportion to $\alpha p_0(x) p_0(y \mid x)$, with
    an expert 0 that is never trained. A new example goes to the short-term memory; the others train
    the experts by their shares. When the memory is full, a new expert is trained on it ("sleep"),
    and it is emptied. The classifiers' probabilities are sharpened for this choice, not for their
    training.

    All this happens in the graph and knows no tasks: nothing is masked in training; at test a
    multi-head masks the classes of other tasks. The experts have an Adam of their own each; the
    compiled optimizer gives the classifiers' step size and nothing else.

    Args:
        network: `nccl_tf.mlp_experts` or `conv_experts`.
        memory: A `ShortTermMemory` that holds a batch or more.
        log_alpha: $\log \alpha$, in nats; None for the default of the kind of experts.
        vae_steps: Training steps of a new autoencoder; None for the default of the kind of experts,
            but no more than 16 for each slot of the memory, which is how often the released code
            sees an example.
        classifier_steps: Training steps of a new classifier; None for the default of the kind.
        sleep_batch_size: Examples in such a step.
        vae_learning_rate: Step size of the autoencoders; None for the default of the kind.
        classifier_chill: Temperature of the classifiers in the choice of the expert.
        stores: As for `Learner`: here a memory is no sample of the stream but what waits for an
            expert, so that an example is stored in every pass that finds it new, as in the paper's
            runs of ten epochs.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The network has no experts, a number is out of range, or, in the first step, a
            batch is larger than the memory.

    Example:
        >>> import nccl_tf
        >>> network = nccl_tf.mlp_experts((28, 28, 1), 10, max_experts=4)
        >>> memory = nccl_tf.ShortTermMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.CNDPM(network, memory)
    """

    memory_class = ShortTermMemory
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "makes its experts in Python while it learns",
        "loss": "explains a label by the class probabilities of its experts",
        "class_weight": "trains an expert on examples by how well it explains them",
        "add_classes": "its experts have the outputs that they are built with",
        "padding": "draws noise for each row of what it reads, which is another for more rows",
        **rows.CN_DPM.refuses,
    }
    log_names: ClassVar[tuple[str, ...]] = ("loss", "experts", "new_share", "log_density")

    def __init__(
        self,
        network: keras.Model,
        memory: ShortTermMemory,
        *,
        log_alpha: float | None = None,
        vae_steps: int | None = None,
        classifier_steps: int | None = None,
        sleep_batch_size: int = 50,
        vae_learning_rate: float | None = None,
        classifier_chill: float = 0.01,
        stores: str = STORES[1],
        **kwargs: Any,
    ):
        super().__init__(network, memory, stores=stores, **kwargs)
        self.experts = network.layers[-1]
        if not isinstance(self.experts, Experts):
            raise UserError(
                f"received the network {network.name!r}: cn_dpm expects a network of experts, "
                "nccl_tf.mlp_experts or conv_experts"
            )
        self.log_alpha, self.vae_learning_rate = log_alpha, vae_learning_rate
        self.vae_steps, self.classifier_steps = vae_steps, classifier_steps
        self.sleep_batch_size, self.classifier_chill = sleep_batch_size, classifier_chill
        given = {row.name: getattr(self, row.name) for row in CNDPM.hyperparameters}
        default = dict(_DEFAULTS[self.experts.kind])
        default["vae_steps"] = min(default["vae_steps"], _VAE_STEPS_PER_SLOT * memory.capacity)
        self._used = default | {k: v for k, v in given.items() if v is not None}
        self.draws = self.state("draws", (), "int64")
        self.vae_training = PartTraining(self.experts, self.experts.vae, self.state)
        self.classifier_training = PartTraining(self.experts, self.experts.classifier, self.state)

    def update(self, batch: Batch) -> Step:
        """Train the experts on their examples, store the rest, and sleep if the memory is full."""
        size, capacity = batch.labels.shape[0], self.memory.capacity
        if size is not None and size > capacity:
            raise UserError(
                f"received a batch of {size} examples and a short-term memory of {capacity}: it "
                "must hold a batch; raise --memory or --memory_per_class, or lower "
                "--batch_size"
            )
        draw = self.draws.value.assign_add(1)
        step, is_new = self._awake(batch, draw)
        place = self.memory.stored.value + tf.cumsum(tf.cast(is_new, tf.int64))
        fits = is_new & (place <= capacity)
        self.memory.write(batch._replace(weights=tf.cast(fits, tf.float32)))
        tf.cond(self.memory.stored.value >= capacity, self._sleep, lambda: None)
        # What came when the memory was full waits for the expert after the new one.
        left = is_new & tf.logical_not(fits)
        self.memory.write(batch._replace(weights=tf.cast(left, tf.float32)))
        return step

    def after_step(self, batch: Batch, step: Step) -> None:
        """Nothing: the update writes the memory."""

    def remember(self, *args: Any, **kwargs: Any) -> None:
        """Refused: its memory holds only examples that wait for a new expert.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"received examples to remember for a {type(self).__name__}, whose memory holds those "
            "that no expert has learned yet: fit it on them"
        )

    def log_joint(self, view: ExpertOutputs, labels: tf.Tensor) -> tf.Tensor:
        """How well each expert explains examples, [1 + experts, n], as `assign` takes it.

        Args:
            view: Of their inputs.
            labels: int64 [n].
        """
        experts, dtype = self.experts, view.densities.dtype
        number = tf.range(1 + experts.max_experts, dtype=tf.int64)
        count = experts.count.value
        weights = tf.math.log(tf.cast(experts.weights_of_experts.value, dtype))
        weights = tf.where(number > 0, weights, tf.constant(self._used["log_alpha"], dtype))
        # With all experts there can be, an example must belong to one of them.
        exists = (number <= count) & ((number > 0) | (count < experts.max_experts))
        return log_joint(
            weights, exists, view.densities, view.predictions, labels,
            self._used["classifier_chill"],
        )  # fmt: skip

    def _awake(self, batch: Batch, draw: tf.Tensor) -> tuple[Step, tf.Tensor]:
        experts = self.experts
        inputs = experts.scale_images(batch.inputs)
        size = batch.labels.shape[0] or tf.shape(batch.labels)[0]
        noise = experts.sample_noise(seeded(self.seed, draw), size)
        view = experts.expert_outputs(inputs, noise)
        raw = experts.log_posterior(view)
        logits = Logits(raw, self.masked(raw, batch))
        loss, logs = self.training_loss(logits, batch)
        joint = self.log_joint(view, batch.labels)
        accepted = self._accepts(loss, tf.reduce_sum(tf.reduce_max(joint, axis=0)))
        real = accepted & (batch.weights > 0)
        assignment = assign(joint)
        is_new = assignment.is_new & real
        shares = tf.where(real, assignment.shares, tf.zeros_like(joint))
        usage = tf.reduce_sum(shares, axis=1)
        experts.weights_of_experts.assign_add(tf.cast(usage, tf.float64))
        vae_rate, classifier_rate = self._rates(self._used["awake"])
        train = (inputs, batch.labels, noise)
        self.vae_training.train(*train, view.vae_features, shares, vae_rate)
        self.classifier_training.train(*train, view.classifier_features, shares, classifier_rate)
        belongs = tf.reduce_sum(shares * tf.where(shares > 0, view.densities, 0))
        real_count = tf.reduce_sum(tf.cast(real, joint.dtype))
        nan = tf.constant(float("nan"), joint.dtype)
        logs |= {
            "experts": experts.count.value,
            "new_share": tf.reduce_sum(tf.cast(is_new, joint.dtype)) / real_count,
            # Where every example is new, none belongs to an expert with a density for it.
            "log_density": tf.where(tf.reduce_any(usage > 0), belongs / tf.reduce_sum(usage), nan),
        }
        return self._applied(Step([], logits, logs), accepted), is_new

    def _rates(self, factor: float) -> tuple[tf.Tensor, tf.Tensor]:
        rates = self._used["vae_learning_rate"], tf.convert_to_tensor(self.optimizer.learning_rate)
        return tuple(tf.cast(rate, self.experts.variable_dtype) * factor for rate in rates)

    def _sleep(self) -> None:
        capacity = self.memory.capacity
        draws = 2 * (self._used["vae_steps"] + self._used["classifier_steps"])
        self._grow(
            self.memory.inputs.value[:capacity],
            self.memory.labels.value[:capacity],
            self.draws.value.assign_add(draws) - draws,
        )
        self.memory.clear()

    def _grow(self, inputs: tf.Tensor, labels: tf.Tensor, draw: tf.Tensor) -> None:
        expert = self.experts.count.value + 1
        vae_rate, classifier_rate = self._rates(1.0)
        size, vae_steps = self._used["sleep_batch_size"], self._used["vae_steps"]
        self.vae_training.sleep(
            expert, Sleep(inputs, labels, vae_steps, size, vae_rate, self._seeds(draw))
        )
        draw += 2 * vae_steps
        steps = self._used["classifier_steps"]
        self.classifier_training.sleep(
            expert, Sleep(inputs, labels, steps, size, classifier_rate, self._seeds(draw))
        )
        size = tf.cast(inputs.shape[0], tf.float64)
        self.experts.weights_of_experts.value.scatter_nd_update([[expert]], [size])
        self.experts.count.assign(expert)

    def _seeds(self, draw: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        return lambda i: seeded(self.seed, draw + 1 + i)

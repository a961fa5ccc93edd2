"""A mixture of experts, each with a density model and a classifier (Lee et al., 2020)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.errors import UserError, checked_name
from nccl_tf.methods.cn_dpm.conv_parts import ConvClassifier, ConvVae
from nccl_tf.methods.cn_dpm.mlp_parts import MlpClassifier, MlpVae
from nccl_tf.methods.cn_dpm.parts import Part, PartOutput
from nccl_tf.methods.cn_dpm.rows import Features, Widths
from nccl_tf.rng import standard_normal

_PARTS = {"mlp": (MlpVae, MlpClassifier), "conv": (ConvVae, ConvClassifier)}


class ExpertOutputs(NamedTuple):
    """The outputs of all experts for a batch of images.

    Attributes:
        densities: [1 + experts, n], log p(x) of each expert; row 0 is the expert that is never
            trained. Rows of experts that do not exist yet are undefined.
        predictions: [1 + experts, n, classes], log p(y | x), with the same rows.
        vae_features: Features of the autoencoders.
        classifier_features: Features of the classifiers.
    """

    densities: tf.Tensor
    predictions: tf.Tensor
    vae_features: Features
    classifier_features: Features


@keras.saving.register_keras_serializable(package="nccl_tf")
class Experts(keras.layers.Layer):
    """p(y | x) of a mixture: proportional to the sum over experts of N_k p_k(x) p_k(y | x).

    The weights of all `max_experts` experts exist from the start, one row of a variable each; the
    first `count` of them are in the mixture. So adding an expert changes no shape. Row 0 belongs to
    an expert that is never trained and not in the mixture.

    Args:
        num_classes: Number of classes.
        kind: "mlp" or "conv".
        vae_widths: Channels of the first autoencoder, and of each later one.
        classifier_widths: Channels of the first classifier, and of each later one.
        latent: Dimension of an autoencoder's code.
        samples: Codes drawn to estimate log p(x).
        max_experts: Maximum number of experts.
        scale: Factor that scales raw pixels to [0, 1].
        seed: Seed of the initial weights.

    Raises:
        UserError: `max_experts` or `samples` is below 1, or `kind` is unknown.
    """

    def __init__(
        self,
        num_classes: int,
        kind: str,
        vae_widths: tuple[int, int],
        classifier_widths: tuple[int, int],
        latent: int,
        samples: int,
        max_experts: int,
        scale: float = 1 / 255,
        seed: int = 0,
        **kwargs: Any,
    ):
        # No autocast under any dtype policy: densities of thousands of nats need full precision.
        super().__init__(autocast=False, **kwargs)
        checked_name("kind of expert", kind, _PARTS)
        if max_experts < 1 or samples < 1:
            raise UserError(
                f"received max_experts={max_experts} and samples={samples}: expected 1 or more"
            )
        self.arguments: dict[str, Any] = {
            "num_classes": num_classes, "kind": kind, "vae_widths": tuple(vae_widths),
            "classifier_widths": tuple(classifier_widths), "latent": latent, "samples": samples,
            "max_experts": max_experts, "scale": scale, "seed": seed,
        }  # fmt: skip
        self.kind, self.latent, self.samples = kind, int(latent), int(samples)
        self.max_experts, self.num_classes = int(max_experts), int(num_classes)
        self.scale = float(scale)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create the weights of all experts, for images of this shape."""
        shape: Any = tuple(input_shape[1:])
        arguments = self.arguments
        make_vae, make_classifier = _PARTS[self.kind]
        vae_widths = Widths(*arguments["vae_widths"], self.max_experts)  # type: ignore[call-arg]
        widths = Widths(*arguments["classifier_widths"], self.max_experts)  # type: ignore[call-arg]
        self.vae: MlpVae = make_vae(shape, vae_widths, self.latent)
        self.classifier: MlpClassifier = make_classifier(shape, widths, self.num_classes)
        random = np.random.default_rng(arguments["seed"])
        self.vae_rows = self._rows("vae", self.vae.initial_rows(random))
        self.classifier_rows = self._rows("classifier", self.classifier.initial_rows(random))
        self.weights_of_experts = self.add_weight(
            name="weights_of_experts", shape=(1 + self.max_experts,), dtype="float64",
            initializer="zeros", trainable=False, autocast=False,
        )  # fmt: skip
        self.count = self.add_weight(
            name="count", shape=(), dtype="int64", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip

    def scale_images(self, images: tf.Tensor) -> tf.Tensor:
        """Scale raw images to [0, 1], in the dtype of the weights."""
        return tf.cast(images, self.variable_dtype) * tf.constant(self.scale, self.variable_dtype)

    def sample_noise(self, seed: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Sample standard normal noise for the codes of `count` images.

        Args:
            seed: int64 [2], used once.
            count: Number of images.

        Returns:
            [count, samples, latent].
        """
        size = count * self.samples * self.latent
        drawn = standard_normal(seed, size, self.variable_dtype)
        return tf.reshape(drawn, [count, self.samples, self.latent])

    def expert_outputs(self, images: tf.Tensor, noise: tf.Tensor) -> ExpertOutputs:
        """Apply every expert to images.

        Args:
            images: [n, h, w, c] in [0, 1].
            noise: [n, samples, latent], or [samples, latent] to share it between the images, which
                needs the memory of one sample only.
        """

        def density(output: PartOutput) -> tf.Tensor:
            if noise.shape.rank == 3:
                return self.vae.log_density(images, output, noise)
            densities = tf.map_fn(
                lambda sample: self.vae.log_density(images, output, sample[None, None]), noise
            )
            return tf.reduce_mean(densities, axis=0)

        densities, vae_features = self.map_experts(self.vae, images, density)
        predictions, features = self.map_experts(
            self.classifier, images, lambda output: output.result
        )
        return ExpertOutputs(densities, predictions, vae_features, features)

    def map_experts(
        self, part: Part, images: tf.Tensor, read: Callable[[PartOutput], tf.Tensor]
    ) -> tuple[tf.Tensor, Features]:
        """Apply one part of every existing expert to images, in the order of the experts.

        Args:
            part: `vae` or `classifier`.
            images: [n, h, w, c] in [0, 1].
            read: Reduces the output of an expert to a tensor, of one shape for all experts.

        Returns:
            The results of `read` [1 + experts, ...] and the features of all experts.
        """
        rows = self.part_rows(part)
        first = part.forward_first(rows.value.sparse_read(1), images)
        results = [read(part.forward_first(rows.value.sparse_read(0), images)), read(first)]
        results += [tf.zeros_like(results[0])] * (self.max_experts - 1)

        def step(expert: tf.Tensor, results: tf.Tensor, features: Features) -> tuple[Any, ...]:
            output = part.forward_lateral(rows.value.sparse_read(expert), images, expert, features)
            selected = tf.equal(tf.range(1 + self.max_experts, dtype=tf.int64), expert)
            selected = tf.reshape(selected, [-1] + [1] * (results.shape.rank - 1))
            results = tf.where(selected, read(output)[None], results)
            pairs = zip(features, output.features, strict=True)
            return expert + 1, results, tuple(earlier + new for earlier, new in pairs)

        start = (tf.constant(2, tf.int64), tf.stack(results), first.features)
        if self.max_experts == 1:
            return start[1], start[2]
        _, stacked, features = tf.while_loop(
            lambda expert, *_: expert <= self.count.value, step, start, parallel_iterations=1
        )
        return stacked, features

    def part_rows(self, part: Part) -> keras.Variable:
        """The weights of one part of all experts, [1 + experts, size]."""
        return self.vae_rows if part is self.vae else self.classifier_rows

    def log_posterior(self, outputs: ExpertOutputs) -> tf.Tensor:
        """log p(y | x) of the mixture, [n, classes]; uniform as long as no expert exists."""
        dtype = outputs.densities.dtype
        weights = tf.math.log(tf.cast(self.weights_of_experts.value, dtype))
        joint = weights[:, None, None] + outputs.densities[..., None] + outputs.predictions
        number = tf.range(1 + self.max_experts, dtype=tf.int64)
        exists = ((number > 0) & (number <= self.count.value))[:, None, None]
        joint = tf.where(exists, joint, tf.constant(dtype.min, dtype))
        return tf.nn.log_softmax(tf.reduce_logsumexp(joint, axis=0))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """log p(y | x), [n, classes], of raw images; every call draws the same codes."""
        noise = self.sample_noise(tf.constant([0, 0], tf.int64), 1)[0]
        return self.log_posterior(self.expert_outputs(self.scale_images(inputs), noise))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, int]:
        """(n, classes)."""
        return (input_shape[0], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return {**super().get_config(), **self.arguments}

    def _rows(self, name: str, values: np.ndarray) -> keras.Variable:
        rows = self.add_weight(
            name=name, shape=values.shape, dtype=self.variable_dtype, initializer="zeros",
            autocast=False,
        )  # fmt: skip
        rows.assign(values)
        return rows

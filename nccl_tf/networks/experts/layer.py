"""A mixture of experts, each with a density of images and a classifier (Lee et al., 2020)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.errors import UserError, check_name
from nccl_tf.networks.experts.conv_parts import ConvClassifier, ConvVae
from nccl_tf.networks.experts.mlp_parts import MlpClassifier, MlpVae
from nccl_tf.networks.experts.parts import Part, PartOutput
from nccl_tf.networks.experts.rows import Features, Widths
from nccl_tf.rng import standard_normal

_PARTS = {"mlp": (MlpVae, MlpClassifier), "conv": (ConvVae, ConvClassifier)}


class ExpertOutputs(NamedTuple):
    """What all experts say about images.

    Attributes:
        densities: [1 + experts, n], log p(x) of each expert; row 0 of the expert that is never
            trained. Rows of experts that do not exist yet mean nothing.
        predictions: [1 + experts, n, classes], log p(y | x), likewise.
        vae_features: Of the autoencoders.
        classifier_features: Of the classifiers.
    """

    densities: tf.Tensor
    predictions: tf.Tensor
    vae_features: Features
    classifier_features: Features


@keras.saving.register_keras_serializable(package="nccl_tf")
class Experts(keras.layers.Layer):
    """p(y | x) of a mixture: proportional to the sum over experts of N_k p_k(x) p_k(y | x).

    The weights of all experts that there can ever be exist from the start, a row of a variable
    each, and `count` of them take part. So an expert more changes no shape. Row 0 belongs to an
    expert that is never trained nor part of the mixture.

    Args:
        num_classes: Number of classes.
        kind: "mlp" or "conv".
        vae_widths: Channels of the first autoencoder, and of each later one.
        classifier_widths: Channels of the first classifier, and of each later one.
        latent: Length of an autoencoder's code.
        samples: Codes drawn to estimate log p(x).
        max_experts: Greatest number of experts.
        scale: Factor on raw pixels that brings them to [0, 1].
        seed: Gives all first weights.

    Raises:
        UserError: There is to be no expert or no sample, or `kind` is unknown.
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
        # Densities of thousands of nats need all bits, under every dtype policy.
        super().__init__(autocast=False, **kwargs)
        check_name("kind of expert", kind, _PARTS)
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
        """Make the weights of all experts, for images of this shape."""
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
            name="count", shape=(), dtype="int32", initializer="zeros", trainable=False,
            autocast=False,
        )  # fmt: skip

    def scale_images(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images in [0, 1], in the dtype of the weights."""
        return tf.cast(images, self.variable_dtype) * tf.constant(self.scale, self.variable_dtype)

    def sample_noise(self, seed: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Standard normal numbers [count, samples, latent].

        Args:
            seed: int64 [2], never the same twice.
            count: Number of images.
        """
        size = count * self.samples * self.latent
        drawn = standard_normal(seed, size, self.variable_dtype)
        return tf.reshape(drawn, [count, self.samples, self.latent])

    def expert_outputs(self, images: tf.Tensor, noise: tf.Tensor) -> ExpertOutputs:
        """What every expert says about images [n, h, w, c] in [0, 1].

        Args:
            images: As above.
            noise: [n, samples, latent] for every image, or [samples, latent] for all of them;
                the latter takes the memory of one sample.
        """

        def density(output: PartOutput) -> tf.Tensor:
            if noise.shape.rank == 3:
                return self.vae.log_density(images, output, noise)
            each = tf.map_fn(
                lambda one: self.vae.log_density(images, output, one[None, None]), noise
            )
            return tf.reduce_mean(each, axis=0)

        densities, vae_features = self.map_experts(self.vae, images, density)
        predictions, features = self.map_experts(self.classifier, images, lambda each: each.result)
        return ExpertOutputs(densities, predictions, vae_features, features)

    def map_experts(
        self, part: Part, images: tf.Tensor, read: Callable[[PartOutput], tf.Tensor]
    ) -> tuple[tf.Tensor, Features]:
        """One part of every expert that exists, one after the other.

        Args:
            part: `vae` or `classifier`.
            images: [n, h, w, c] in [0, 1].
            read: What to keep of an output, one shape for all experts.

        Returns:
            What was kept, [1 + experts, ...], and the features of all experts.
        """
        rows = self.part_rows(part)
        first = part.forward_first(rows.value.sparse_read(1), images)
        kept = [read(part.forward_first(rows.value.sparse_read(0), images)), read(first)]
        kept += [tf.zeros_like(kept[0])] * (self.max_experts - 1)

        def step(expert: tf.Tensor, kept: tf.Tensor, features: Features) -> tuple[Any, ...]:
            output = part.forward_lateral(rows.value.sparse_read(expert), images, expert, features)
            here = tf.equal(tf.range(1 + self.max_experts), expert)
            here = tf.reshape(here, [-1] + [1] * (kept.shape.rank - 1))
            kept = tf.where(here, read(output)[None], kept)
            pairs = zip(features, output.features, strict=True)
            return expert + 1, kept, tuple(before + own for before, own in pairs)

        start = (tf.constant(2), tf.stack(kept), first.features)
        if self.max_experts == 1:
            return start[1], start[2]
        _, kept, features = tf.while_loop(
            lambda expert, *_: expert <= self.count.value, step, start, parallel_iterations=1
        )
        return kept, features

    def part_rows(self, part: Part) -> keras.Variable:
        """The weights of a part of all experts, [1 + experts, size]."""
        return self.vae_rows if part is self.vae else self.classifier_rows

    def log_posterior(self, outputs: ExpertOutputs) -> tf.Tensor:
        """log p(y | x) of the mixture, [n, classes]; uniform where no expert exists yet."""
        dtype = outputs.densities.dtype
        weights = tf.math.log(tf.cast(self.weights_of_experts.value, dtype))
        joint = weights[:, None, None] + outputs.densities[..., None] + outputs.predictions
        number = tf.range(1 + self.max_experts)
        exists = ((number > 0) & (number <= self.count.value))[:, None, None]
        joint = tf.where(exists, joint, tf.constant(dtype.min, dtype))
        return tf.nn.log_softmax(tf.reduce_logsumexp(joint, axis=0))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """log p(y | x), [n, classes], of raw images; the same codes are drawn at every call."""
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

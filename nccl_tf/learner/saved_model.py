"""A Keras model that refuses to be saved as what could not be loaded again."""

import inspect
import json
import os
from typing import Any

import keras

from nccl_tf.errors import UserError
from nccl_tf.networks.inspection import check_has_no_adapters


class SavedModel(keras.Model):
    """`save` and `export` for models whose constructor rebuilds them from `get_config`."""

    network: keras.Model

    def save(
        self,
        filepath: Any,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Save the model with its memory and its optimizer, for `nccl_tf.load_model`.

        Args:
            filepath: Of a .keras file.
            overwrite, zipped, **kwargs: As for `keras.Model.save`.

        Raises:
            UserError: The file has another ending, or as for `check_saves`.
        """
        path = os.fspath(filepath)
        if path.endswith((".h5", ".hdf5")):
            raise UserError(
                f"received save({path!r}), a format that has no place for the memory and the "
                "random draws: expected a .keras file"
            )
        self.check_saves()
        super().save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """As in Keras.

        Raises:
            UserError: A layer of the network has LoRA enabled.
        """
        check_has_no_adapters(self.network)
        super().save_weights(filepath, *args, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        """As in Keras, with the random state of the network's layers, which Keras leaves out."""
        check_has_no_adapters(self.network)  # pickle and deepcopy come by no other way
        super().save_own_variables(store)
        for name, state in self._random_states().items():
            store[name] = state

    def load_own_variables(self, store: Any) -> None:
        """Load what `save_own_variables` saved; files of before have no random state."""
        # What Keras passes has keys, and is no dictionary.
        saved = {name: store[name] for name in store.keys()}  # noqa: SIM118
        for name, state in self._random_states().items():
            if name in saved:
                state.assign(saved.pop(name))
        super().load_own_variables(saved)

    def _random_states(self) -> dict[str, keras.Variable]:
        """Those of dropout, random augmentation and noise: variables that are no weights."""
        weights = {id(weight) for weight in self.network.weights}
        others = [v for v in self.network.variables if id(v) not in weights]
        return {f"random_{i}": variable for i, variable in enumerate(others)}

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Refused: what serves is the network, without memory and masks.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"received export({os.fspath(filepath)!r}) for a learner, whose memory and masks do "
            "not serve: export the network, model.network.export(path), whose outputs are the "
            "logits of all classes"
        )

    def check_saves(self) -> None:
        """Check that loading gives the same model, as far as can be told.

        Raises:
            UserError: An argument of a constructor of one's own is missing in `get_config`, or the
                loss or a metric is a lambda, or a layer of the network has LoRA enabled.
        """
        check_has_no_adapters(self.network)
        compiled = self.get_compile_config() or {}
        if '"__lambda__"' in json.dumps(compiled, default=repr):
            raise UserError(
                "received a model to save whose loss or metric is a lambda, which no file that is "
                "loaded safely may hold: write it as def loss(y_true, y_pred) under "
                "@keras.saving.register_keras_serializable(), and compile again"
            )
        if "from_config" in vars(type(self)):
            return
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        names = [one.name for one in parameters if one.kind not in kinds]
        config = self.get_config()
        for name in names:
            if name not in config:
                raise UserError(
                    f"received a {type(self).__name__} to save, whose get_config lacks {name!r} of "
                    "its constructor, so that a loaded one would have another: expected def "
                    f'get_config(self): return {{**super().get_config(), "{name}": self.{name}}}'
                )

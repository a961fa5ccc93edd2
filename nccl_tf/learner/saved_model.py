"""A Keras model that refuses to be saved as what could not be loaded again."""

import inspect
import os
from typing import Any

import keras

from nccl_tf.errors import UserError


class SavedModel(keras.Model):
    """`save` and `export` for models whose constructor rebuilds them from `get_config`."""

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
            UserError: The file has another ending, or a constructor's argument of one's own is
                missing in `get_config`, so that the loaded model would have its default.
        """
        path = os.fspath(filepath)
        if path.endswith((".h5", ".hdf5")):
            raise UserError(
                f"received save({path!r}), a format that has no place for the memory and the "
                "random draws: expected a .keras file"
            )
        self.check_saves()
        super().save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)

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
        """Check that `from_config` would receive every argument of a constructor of one's own.

        Raises:
            UserError: One is missing in `get_config`.
        """
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

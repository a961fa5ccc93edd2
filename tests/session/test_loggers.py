"""Keras's loggers keep every task of a stream, also where a call was killed and goes on."""

import keras
import pytest

import nccl_tf
from nccl_tf.session.loggers import forget_epochs
from tests.session.test_backup import Kill, Killed
from tests.session.test_learn import again, tiny_stream
from tests.tiny import scalars

EPOCHS = list(range(4))  # of two tasks, two each
BATCHES = 5  # of an epoch


def loggers(folder):
    return [
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
        keras.callbacks.TensorBoard(folder / "board", write_graph=False, update_freq=1),
    ]


def learn(folder, *callbacks, backup_dir=None, **given):
    nccl_tf.learn(
        given.pop("model", None) or again(), tiny_stream(), batch_size=5, epochs=2, verbose=0,
        callbacks=[*(given.pop("loggers", None) or loggers(folder)), *callbacks],
        backup_dir=backup_dir, backup_every=0.0, **given,
    )  # fmt: skip


def epochs_of(folder):
    header, *rows = (folder / "log.csv").read_text().splitlines()
    assert header.startswith("epoch,") and len({row.count(",") for row in (header, *rows)}) == 1
    return [int(row.split(",")[0]) for row in rows]


def check(folder):
    assert epochs_of(folder) == EPOCHS
    files = sorted(path.name for path in folder.glob("*.keras"))
    assert files == [f"{epoch + 1}.keras" for epoch in EPOCHS]
    found = scalars(folder / "board" / "train")
    assert sorted(found["epoch_loss"]) == EPOCHS
    assert sorted(found["batch_loss"]) == [*range(1, BATCHES * len(EPOCHS) + 1)]


def test_epochs_and_batches_go_on_over_the_tasks(tmp_path):
    callbacks = loggers(tmp_path)
    learn(tmp_path, loggers=callbacks)
    check(tmp_path)
    csv, _, board = callbacks
    assert not csv.append and not {"on_epoch_end", "on_train_begin"} & {*vars(csv), *vars(board)}


@pytest.mark.parametrize("kills", [(8,), (2, 5)])
def test_a_call_that_goes_on_has_every_epoch_once(kills, tmp_path):
    for calls in kills:
        with pytest.raises(Killed):
            learn(tmp_path, Kill(calls), backup_dir=tmp_path / "backup")
    learn(tmp_path, Kill(0), backup_dir=tmp_path / "backup")
    assert epochs_of(tmp_path) == EPOCHS
    assert sorted(scalars(tmp_path / "board" / "train")["epoch_loss"]) == EPOCHS


def test_rows_of_another_training_are_kept(tmp_path):
    """With `append`, the user asks for it."""
    for _ in range(2):
        appends = keras.callbacks.CSVLogger(tmp_path / "log.csv", append=True)
        learn(tmp_path, loggers=[appends])
    assert epochs_of(tmp_path) == 2 * EPOCHS


def test_other_callbacks_count_the_epochs_of_each_task(tmp_path):
    seen = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    learn(tmp_path, loggers=[count])
    assert seen == [0, 1, 0, 1]


def test_a_log_in_another_encoding_keeps_its_bytes(tmp_path):
    """Keras writes as the system does, such as cp1252 with its ends of lines on Windows."""
    header, first, second = "epoch,müde\r\n".encode("cp1252"), b"0,0.5\r\n", b"1,0.25\r\n"
    (tmp_path / "log.csv").write_bytes(header + first + second)
    forget_epochs([keras.callbacks.CSVLogger(tmp_path / "log.csv")], 1)
    assert (tmp_path / "log.csv").read_bytes() == header + first

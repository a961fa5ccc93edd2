"""Folders and lists of images: of every format, with nothing left out in silence."""

import logging
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.sources.image_files import read_image
from nccl_tf.streams.sources.named import content_digest
from tests.folders import inside

SIDE = 6


def picture(number):
    return np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8)


def save(path, number=0, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number)).save(path, **how)


@pytest.fixture
def pets(tmp_path):
    """A folder of two classes in two parts."""
    root = tmp_path / "pets"
    for part in ("train", "test"):
        for label, name in enumerate(("cat", "dog")):
            for i in range(2):
                save(root / part / name / f"{i}.png", 10 * label + i)
    return root


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        ("gif", {}), ("webp", {"lossless": True}), ("tif", {"compression": "tiff_lzw"}),
        ("TIFF", {}), ("bmp", {}), ("webp", {"lossless": True, "save_all": True}),
    ],
)  # fmt: skip
def test_every_format_is_read_as_it_was_written(pets, ending, how):
    if how.get("save_all"):
        how = how | {"append_images": [Image.fromarray(picture(7))]}
    for i in range(2):
        for part in ("train", "test"):
            save(pets / part / "eel" / f"{i}.{ending}", 20 + i, **how)
    stream = load_stream(f"folder:{pets}", num_tasks=1)
    assert stream.class_names == ("cat", "dog", "eel")
    found = stream[0].train.inputs[stream[0].train.labels == 2]
    np.testing.assert_array_equal(found, np.stack([picture(20), picture(21)]))


def png_of_16_bits(channels: int) -> bytes:
    """4 x 4 pixels of 1 to 3 channels with values up to 4095, as cameras of 12 bits have."""
    values = np.linspace(0, 4095, 16 * channels).astype(">u2").reshape(4, -1)

    def part(name, content):
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    header = struct.pack(">IIBBBBB", 4, 4, 16, {1: 0, 2: 4, 3: 2}[channels], 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in values))
    parts = part(b"IHDR", header) + part(b"IDAT", rows) + part(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def tiff_of_16_bits() -> bytes:
    """4 x 4 pixels of three channels, whose mode Pillow calls RGB."""
    pixels = np.linspace(0, 4095, 48).astype("<u2").tobytes()
    start = 8 + len(pixels) + 6  # of the directory, behind the pixels and the three depths
    tags = [
        (256, 3, 1, 4), (257, 3, 1, 4), (258, 3, 3, 8 + len(pixels)), (259, 3, 1, 1),
        (262, 3, 1, 2), (273, 4, 1, 8), (277, 3, 1, 3), (278, 3, 1, 4), (279, 4, 1, len(pixels)),
    ]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    depths = struct.pack("<HHH", 16, 16, 16)
    return struct.pack("<2sHI", b"II", 42, start) + pixels + depths + directory + b"\0" * 4


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"{channels}.png", png_of_16_bits(channels)) for channels in (1, 2, 3)),
        ("rgb.tif", tiff_of_16_bits()),
    ],
)
def test_an_image_of_16_bits_is_not_cut_to_8(tmp_path, name, content):
    """It would be black, or have a few grey levels."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} has values of 16 bits a channel"):
        read_image(tmp_path / name)


def test_an_image_of_fractions_is_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(UserError, match=r"x\.tif has values of"):
        read_image(tmp_path / "x.tif")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P"])
def test_an_image_of_fewer_bits_is_read(tmp_path, mode):
    image = Image.fromarray(np.uint8([[0, 255], [255, 0]])).convert(mode)
    image.save(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png")[..., 0].tolist() == [[0, 255], [255, 0]]


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


LOST = {
    "train/eel/0.heic": "1 .heic in train/eel/",
    "train/eel/notes.txt": "1 .txt in train/eel/",
    "train/cat/2.heic": "1 .heic in train/cat/",
    "train/cat/more/2.png": "1 .png in train/cat/more/",
    "train/2.png": "1 .png in train/",
    "test/2.jpeg": "1 .jpeg in test/",
}


@pytest.mark.parametrize("name", LOST)
def test_what_would_be_left_out_is_refused(pets, name):
    (pets / name).parent.mkdir(parents=True, exist_ok=True)
    (pets / name).write_bytes(b"x")
    with pytest.raises(UserError, match=f"1 file that would be left out: {LOST[name]}"):
        load_stream(f"folder:{pets}", num_tasks=1)


@pytest.mark.parametrize("make", [pipe, lambda path: path.symlink_to("/dev/zero")])
def test_pipes_devices_and_broken_links_are_refused_before_anything_reads(pets, tmp_path, make):
    make(pets / "train" / "cat" / "9.png")
    with pytest.raises(UserError, match="1 pipe, device or broken link in train/cat/"):
        load_stream(f"folder:{pets}", num_tasks=1)
    lines = [f"{pets}/train/cat/{i}.png cat\n" for i in (0, 1, 9)]
    (tmp_path / "list.txt").write_text("".join(lines))
    for read in (content_digest, lambda name: load_stream(name, num_tasks=1)):
        with pytest.raises(UserError, match=r"9\.png is a pipe, a device or a folder"):
            read(f"list:{tmp_path / 'list.txt'}")
    (pets / "train" / "cat" / "9.png").unlink()
    with pytest.raises(UserError, match=r"9\.png is not there"):
        content_digest(f"list:{tmp_path / 'list.txt'}")


def test_links_to_images_and_folders_are_read_and_hashed(pets, tmp_path):
    linked = tmp_path / "linked"
    shutil.copytree(pets, linked)
    shutil.move(linked / "train" / "cat", tmp_path / "cats")
    (linked / "train" / "cat").symlink_to(tmp_path / "cats")
    (linked / "train" / "dog" / "loop").symlink_to(linked / "train" / "dog")
    plain, linked = f"folder:{pets}", f"folder:{linked}"
    assert content_digest(plain) == content_digest(linked)
    for one, other in zip(
        *(load_stream(name, num_tasks=2) for name in (plain, linked)), strict=True
    ):
        np.testing.assert_array_equal(one.train.inputs, other.train.inputs)


def test_links_that_lead_out_of_a_folder_are_named(pets, tmp_path, caplog):
    shutil.move(pets / "train" / "cat", tmp_path / "cats")
    (pets / "train" / "cat").symlink_to(tmp_path / "cats")
    (pets / "train" / "loop").symlink_to(pets / "train")
    load_stream(f"folder:{pets}", num_tasks=2)
    (said,) = caplog.messages
    assert "1 links that lead out" in said and f"train/cat to {tmp_path / 'cats'}" in said
    (pets / "train" / "all").symlink_to(tmp_path)
    with pytest.raises(UserError, match="in which the folder itself lies"):
        load_stream(f"folder:{pets}", num_tasks=2)


def test_folders_are_looked_at_as_deep_as_paths_are_long(pets):
    """1,500 levels were Python's RecursionError."""
    with inside(pets / "train" / "cat", 1_500):
        load_stream(f"folder:{pets}", num_tasks=2)
        shutil.copy(pets / "train" / "cat" / "0.png", "0.png")
        with pytest.raises(UserError, match="would be left out"):
            load_stream(f"folder:{pets}", num_tasks=2)


def test_other_files_are_named_in_one_sentence(pets, caplog):
    (pets / "README.md").write_text("x")
    (pets / "train" / "cat" / "boxes.txt").write_text("x")
    save(pets / "val" / "cat" / "0.png")
    for ignored in ("Thumbs.db", ".hidden.png"):
        (pets / "train" / "cat" / ignored).write_bytes(b"x")
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        stream = load_stream(f"folder:{pets}", num_tasks=2)
    (message,) = caplog.messages
    assert "3 files that are not read" in message
    for part in ("1 .md in ./", "1 .txt in train/cat/", "1 .png in val/cat/"):
        assert part in message
    assert [len(task.train.labels) for task in stream] == [2, 2]


def test_images_that_no_annotation_names_are_refused(pets):
    shutil.rmtree(pets / "test")
    for number in range(3):
        save(pets / "val" / "images" / f"{number}.png", number)
    lines = [f"{number}.png\tcat\t0\n" for number in range(2)]
    (pets / "val" / "val_annotations.txt").write_text("".join(lines))
    with pytest.raises(UserError, match=r"1 \.png in val/images/"):
        load_stream(f"folder:{pets}", num_tasks=1)


@pytest.mark.parametrize("scheme", ["csv", "list"])
def test_a_third_table_or_list_is_named(tmp_path, caplog, scheme):
    save(tmp_path / "a.png")
    ending = {"csv": "csv", "list": "txt"}[scheme]
    content = {"csv": "a,label\n1,0\n2,1\n", "list": "a.png 0\na.png 1\n"}[scheme]
    for part in ("train", "test", "val"):
        (tmp_path / f"{part}.{ending}").write_text(content)
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        load_stream(f"{scheme}:{tmp_path}", num_tasks=1)
    assert any(f"val.{ending}" in message for message in caplog.messages)


def test_a_name_that_no_file_can_have_is_refused(pets):
    name = "x" * 5_000
    (pets / "list.txt").write_text(f"train/cat/0.png 0\n{name} 1\n")
    with pytest.raises(UserError, match="is not there"):
        load_stream(f"list:{pets / 'list.txt'}", num_tasks=1)
    (pets / "val").mkdir()
    (pets / "val" / "val_annotations.txt").write_text(f"{name}\tcat\n")
    with pytest.raises(UserError, match="is not there"):
        load_stream(f"folder:{pets}", num_tasks=1)


def test_labels_of_very_many_digits_are_names(pets):
    lines = [f"train/{name}/{i}.png {label}" for i in range(2)
             for name, label in (("cat", "7" * 5_000), ("dog", "10"))]  # fmt: skip
    (pets / "list.txt").write_text("\n".join([*lines, *lines]))
    stream = load_stream(f"list:{pets / 'list.txt'}", num_tasks=1)
    assert stream.class_names == ("10", "7" * 5_000)


def test_a_name_that_is_no_utf_8_has_a_digest(pets):
    before = content_digest(f"folder:{pets}")
    os.rename(pets / "train" / "cat", os.fsencode(pets / "train") + b"/\xff")
    os.rename(pets / "test" / "cat", os.fsencode(pets / "test") + b"/\xff")
    assert content_digest(f"folder:{pets}") != before


def test_a_file_too_large_for_an_image_has_no_digest(pets):
    """It is refused before its bytes are read, which may be hundreds of gigabytes of nothing."""
    with (pets / "train" / "cat" / "huge.png").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(UserError, match="cannot read"):
        content_digest(f"folder:{pets}")

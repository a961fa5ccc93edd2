"""Files that somebody else made: every one is read, or refused in one sentence."""

import io
import os
import pickle
import resource
import struct
import time
import tracemalloc
import zlib

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mini_files import by_class, caches, image, write_pickle

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.image_files import read_image
from nccl_tf.streams.sources.mini_imagenet.load import (
    CACHE_NAMES,
    load_mini_imagenet,
    read_source,
)

NOISE = np.random.default_rng(0).integers(0, 256, (84, 84, 3)).astype(np.uint8)


def encoded(kind: str) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(NOISE).save(buffer, kind)
    return buffer.getvalue()


IMAGES = {kind: encoded(kind) for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")}
PICKLES = {
    "single": {"images": np.stack([image(i) for i in range(8)]), "labels": [3, 3, 5, 5] * 2},
    "cache": {"image_data": np.stack([image(i) for i in range(4)]), "class_dict": {"a": [0, 2]}},
}


def damaged(content: bytes, data) -> bytes:
    """The content cut, or with some bytes changed, most of them near its ends."""
    changed = bytearray(content)
    if data.draw(st.booleans()):
        return content[: data.draw(st.integers(0, len(content) - 1))]
    near = st.one_of(st.integers(0, 400), st.integers(-400, -1), st.integers(0, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(near) % len(content)] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(changed)


def read_or_refuse(folder) -> None:
    """Read all images of a source; a UserError of one sentence will do too."""
    try:
        source = read_source(folder)
        for key, label in (*source.train, *source.test):
            pixels = source.read(key)
            assert (pixels.shape, pixels.dtype) == ((84, 84, 3), np.uint8)
            assert 0 <= label < 100
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damaged_pickles(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("source")
    kind = data.draw(st.sampled_from(list(PICKLES)))
    content = pickle.dumps(PICKLES[kind], data.draw(st.sampled_from((2, 5))))
    if kind == "single":
        (folder / "x.pkl").write_bytes(damaged(content, data))
    else:
        caches(folder)
        (folder / CACHE_NAMES[1]).write_bytes(damaged(content, data))
    read_or_refuse(folder)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), kind=st.sampled_from(list(IMAGES)))
def test_damaged_images(tmp_path_factory, data, kind):
    path = tmp_path_factory.mktemp("class") / "x.png"
    path.write_bytes(damaged(IMAGES[kind], data))
    try:
        pixels = read_image(path, 84)
    except UserError as error:
        assert "x.png" in str(error)
    else:
        assert (pixels.shape, pixels.dtype) == ((84, 84, 3), np.uint8)


def png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims a size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 10_000)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [8_000, 10_000, 50_000, 2**31 - 1])
@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_small_files_that_claim_huge_images(tmp_path, side, kind):
    path = tmp_path / f"x.{kind}"
    if kind == "png":
        path.write_bytes(png(side, side))
    else:
        content = bytearray(IMAGES["JPEG"])
        start = content.index(b"\xff\xc0") + 5
        content[start : start + 4] = struct.pack(">HH", min(side, 65535), min(side, 65535))
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"x\.{kind} (claims|is broken)"):
        read_image(path)


def test_frames_after_the_first_of_a_gif_are_not_decoded(tmp_path):
    """Each may be of any size, and takes a thousandth of it in the file."""
    frames = [PIL.Image.fromarray(NOISE // (1 + i)) for i in range(2)]
    path, large = tmp_path / "x.gif", io.BytesIO()
    frames[0].save(path, save_all=True, append_images=frames[1:], comment="a" * 300)
    expected = read_image(path)
    PIL.Image.new("P", (15_000, 15_000)).save(large, "GIF")
    path.write_bytes(path.read_bytes()[:-1] + large.getvalue()[13 + 3 * 2 :])
    assert path.stat().st_size < 300_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.testing.assert_array_equal(read_image(path), expected)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100e6


def test_blocks_of_a_comment_of_a_gif_take_some_times_their_bytes(tmp_path):
    """Pillow has an object of 35 bytes for each."""
    plain, path = IMAGES["GIF"], tmp_path / "x.gif"
    path.write_bytes(plain)
    expected, start = read_image(path), 13 + 3 * 256
    path.write_bytes(plain[:start] + b"!\xfe" + b"\x02ab" * 300_000 + b"\0" + plain[start:])
    tracemalloc.start()
    np.testing.assert_array_equal(read_image(path), expected)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * path.stat().st_size


def test_a_tile_of_a_tiff_is_as_bounded_as_the_image(tmp_path):
    """A tile is decoded whole, and may be far larger than the image that it is of."""
    path = tmp_path / "x.tif"
    for side, size in ((96, 96), (96, 8000)):
        tile, place = zlib.compress(bytes(size * size)), 8 + 2 + 12 * 10 + 4
        tags = {
            256: side, 257: side, 258: 8, 259: 8, 262: 1, 277: 1, 322: size, 323: size,
            324: place, 325: len(tile),
        }  # fmt: skip
        entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        path.write_bytes(b"II*\0\x08\0\0\0\x0a\0" + entries + bytes(4) + tile)
        if size == side:
            assert read_image(path).shape == (96, 96, 3)
    with pytest.raises(UserError, match=r"x\.tif claims 8000 x 8000 pixels"):
        read_image(path)


def test_a_jpeg_of_many_scans_over_all_pixels_is_refused(tmp_path):
    """Each takes seconds of a large image, and a few thousand bytes."""
    path, file = tmp_path / "x.jpg", io.BytesIO()
    PIL.Image.new("L", (4000, 4000)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    path.write_bytes(content)
    assert read_image(path, 8).shape == (8, 8, 3)
    path.write_bytes(content[:-2] + 100 * last + content[-2:])
    with pytest.raises(UserError, match=r"x\.jpg has 4000 x 4000 pixels in \d+ scans"):
        read_image(path, 8)


def test_a_jpeg_with_a_long_exif_is_read_at_once(tmp_path):
    """Pillow would join its 100 MB piece by piece, for minutes."""
    plain, path = IMAGES["JPEG"], tmp_path / "x.jpg"
    piece = b"\xff\xe1\xff\xffExif\0\0" + bytes(65535 - 8)
    path.write_bytes(plain[:2] + piece * 1500 + plain[2:])
    started = time.process_time()
    assert read_image(path).shape == (84, 84, 3)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 5000, b"<svg/>", encoded("PPM"), encoded("ICO"), b"BM" + b"\xff" * 99],
)
def test_what_is_no_image(tmp_path, content):
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.png is broken"):
        read_image(path)


@pytest.mark.parametrize("target", [".", "n01", "nowhere", "../source"])
def test_links_that_lead_nowhere_or_in_a_circle(tmp_path, target):
    folder = tmp_path / "source"
    by_class(folder)
    (folder / "n01" / "9.png").symlink_to(target)
    (folder / "around").symlink_to("around")
    read_or_refuse(folder)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "itself").symlink_to(".")
    read_or_refuse(alone)


def test_pipes_are_not_waited_for(tmp_path):
    by_class(tmp_path / "a")
    os.mkfifo(tmp_path / "a" / "n01" / "9.png")
    with pytest.raises(UserError, match="1 pipe, device or broken link in n01/"):
        read_source(tmp_path / "a")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "x.pkl")
    with pytest.raises(UserError, match="no regular file"):
        read_source(tmp_path / "b")


@pytest.mark.parametrize("name", ["a\nb", " a", "a ", "\x1b[2J", "lone\udcff", "\u2028"])
def test_messages_are_printable_whatever_a_class_is_called(tmp_path, name):
    caches(tmp_path)
    content = {"image_data": np.stack([image(1)] * 2), "class_dict": {name: [0]}}
    write_pickle(tmp_path / CACHE_NAMES[0], content)
    with pytest.raises(UserError, match="has 1 images") as caught:
        read_source(tmp_path)
    assert str(caught.value).isprintable()


def lists_in_lists(count=40):
    """2 to the power of `count` numbers, in a pickle of some hundred bytes."""
    value = [1, 2]
    for _ in range(count):
        value = [value, value]
    return value


def itself():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "rows",
    [
        [[0], [0, 1]], lists_in_lists(), itself(), [2**70, 1], [None, 1], [0.0, 1.0], [[0, 1]],
        {0: 1}, "01", 7, None, [(), ()],
        np.array(["a", "b"]).reshape(1, 2), [True, [False]],
    ],
    ids=range(14),
)  # fmt: skip
def test_labels_and_indices_that_are_no_row(tmp_path, rows):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    images = np.stack([image(1), image(2)])
    write_pickle(tmp_path / "a" / "x.pkl", {"images": images, "labels": rows})
    caches(tmp_path / "b")
    write_pickle(tmp_path / "b" / CACHE_NAMES[2], {"image_data": images, "class_dict": {"a": rows}})
    for source, said in (
        ("a", "the labels in|has 1 images"),
        ("b", "has indices that match no image"),
    ):
        with pytest.raises(UserError, match=said):
            read_source(tmp_path / source)


def test_a_folder_that_cannot_be_listed(tmp_path, monkeypatch):
    by_class(tmp_path)
    from nccl_tf.streams.sources.mini_imagenet.load import Path

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UserError, match="cannot read the folder"):
        load_mini_imagenet(tmp_path / "data", tmp_path)

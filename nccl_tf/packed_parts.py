"""Parts of zip files of strangers: what they unpack to is known before others read them."""

import zipfile

_AT_ONCE = 2**20
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check_kind(part: zipfile.ZipInfo) -> None:
    """Check that a part is stored, or packed so that it can be unpacked piece by piece.

    Of the other kinds, bzip2 and LZMA, `zipfile` unpacks all that it has read, a thousand times as
    much, whatever it was asked for.

    Raises:
        ValueError: It is packed otherwise.
    """
    if part.compress_type not in _KINDS:
        raise ValueError(f"the part {part.filename[:100]!r} is packed neither by deflate nor not")


def check_packed(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Check that a part has the bytes that it claims, as `check_kind` too.

    `zipfile` unpacks what is packed, 2 GiB at most, and cuts it to what is claimed.

    Raises:
        ValueError: It has others.
        zipfile.BadZipFile: It is broken.
    """
    check_kind(part)
    if part.compress_type == zipfile.ZIP_STORED:
        return
    claimed = part.file_size
    part.file_size += 1  # so that one more is read
    try:
        with archive.open(part) as packed:
            size = sum(map(len, iter(lambda: packed.read(_AT_ONCE), b"")))
    finally:
        part.file_size = claimed
    if size != claimed:
        raise ValueError(f"the part {part.filename[:100]!r} has other bytes than it claims")

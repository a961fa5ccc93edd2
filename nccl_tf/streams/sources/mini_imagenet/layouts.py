"""Where a user's mini-ImageNet files are, in which of the layouts, and which images they hold."""

import hashlib
import os
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.mini_imagenet.folder import read_folder
from nccl_tf.streams.sources.mini_imagenet.pickles import read_caches, read_single
from nccl_tf.streams.sources.mini_imagenet.source import CACHE_NAMES, LAYOUTS, Source, list_visible


def locate_files(manual_dir: str | os.PathLike) -> Path:
    """The folder that holds the files.

    This is `manual_dir`/mini_imagenet if there is one (TFDS's own folder is shared by many sets),
    else `manual_dir`; a folder with nothing but one folder in it stands for that one, as archives
    often unpack so.

    Raises:
        UserError: There is no such folder, or it is empty.
    """
    folder = Path(os.path.expanduser(manual_dir))
    own = folder / "mini_imagenet"
    folder = own if os.path.isdir(own) else folder
    if not os.path.isdir(folder) or not list_visible(folder):
        raise UserError(
            f"no mini-ImageNet files in {folder}, which is missing or empty: put there {LAYOUTS}, "
            f"or give their folder as --manual_dir; the digits streams need no files"
        )
    while len(entries := list_visible(folder)) == 1 and entries[0].is_dir():
        if not list_visible(entries[0]) or any(path.is_file() for path in list_visible(entries[0])):
            break
        folder = entries[0]
    return folder


def read_source(folder: Path) -> Source:
    """Find out the layout of a folder's files, and which images it holds.

    Raises:
        UserError: The files are of none of the layouts, incomplete or broken.
    """
    entries = list_visible(folder)
    caches = [name for name in CACHE_NAMES if (folder / name).is_file()]
    pickles = [path for path in entries if path.suffix in (".pkl", ".pickle")]
    if caches:
        if missing := sorted(set(CACHE_NAMES) - set(caches)):
            raise UserError(
                f"{folder} has {', '.join(caches)} but not {', '.join(missing)}: the three "
                f"together give the 100 classes; add what is missing"
            )
        return read_caches([folder / name for name in CACHE_NAMES])
    if len(pickles) > 1:
        raise UserError(
            f"{folder} has {len(pickles)} pickles ({', '.join(path.name for path in pickles)}): "
            f"expected {LAYOUTS}; leave one of them there"
        )
    if pickles:
        return read_single(pickles[0])
    if any(path.is_dir() for path in entries):
        return read_folder(folder)
    raise UserError(f"no mini-ImageNet in {folder}: looked for {LAYOUTS}; put one of these there")


def fingerprint(folder: Path) -> str:
    """12 hex digits that change with the folder's files: names, sizes and times of change.

    Prepared data are kept under this name, so that those of another source are not taken for them.
    """
    digest = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            file = Path(path, name)
            # A link that leads nowhere has a name and a time too.
            status = file.stat() if file.exists() else file.lstat()
            digest.update(
                os.fsencode(file.relative_to(folder))
                + f"\0{status.st_size}\0{status.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()[:12]

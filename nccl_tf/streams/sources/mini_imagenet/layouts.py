"""Locating a user's mini-ImageNet files and reading whichever layout they have."""

import hashlib
import os
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.streams.sources.image_files import list_visible
from nccl_tf.streams.sources.mini_imagenet.folder import read_folder
from nccl_tf.streams.sources.mini_imagenet.pickles import read_caches, read_single
from nccl_tf.streams.sources.mini_imagenet.source import CACHE_NAMES, LAYOUTS, Source


def locate_files(manual_dir: str | os.PathLike) -> Path:
    """Locate the folder with the files.

    It is `manual_dir`/mini_imagenet if that exists (TFDS's default folder is shared by many data
    sets), else `manual_dir`. A folder that contains a single folder stands for the inner one,
    because archives often unpack that way.

    Raises:
        UserError: The folder is missing or empty.
    """
    folder = Path(os.path.expanduser(manual_dir))
    subfolder = folder / "mini_imagenet"
    folder = subfolder if os.path.isdir(subfolder) else folder
    if not os.path.isdir(folder) or not list_visible(folder):
        raise UserError(
            f"no mini-ImageNet files in {folder}, which is missing or empty: put there {LAYOUTS}, "
            f"or name their folder with --manual_dir; the digits streams need no files"
        )
    while len(entries := list_visible(folder)) == 1 and entries[0].is_dir():
        if not list_visible(entries[0]) or any(path.is_file() for path in list_visible(entries[0])):
            break
        folder = entries[0]
    return folder


def read_source(folder: Path) -> Source:
    """Detect the layout of a folder's files and list their images.

    Raises:
        UserError: The files are of another layout, incomplete or broken.
    """
    entries = list_visible(folder)
    caches = [name for name in CACHE_NAMES if (folder / name).is_file()]
    pickles = [path for path in entries if path.suffix in (".pkl", ".pickle")]
    if caches:
        if missing := sorted(set(CACHE_NAMES) - set(caches)):
            raise UserError(
                f"{folder} has {', '.join(caches)} but not {', '.join(missing)}: expected all "
                f"three, which together have the 100 classes; add the missing files"
            )
        return read_caches([folder / name for name in CACHE_NAMES])
    if len(pickles) > 1:
        raise UserError(
            f"{folder} has {len(pickles)} pickles ({', '.join(path.name for path in pickles)}): "
            f"expected {LAYOUTS}; keep one of the pickles"
        )
    if pickles:
        return read_single(pickles[0])
    if any(path.is_dir() for path in entries):
        return read_folder(folder)
    raise UserError(f"no mini-ImageNet in {folder}: looked for {LAYOUTS}; put one of these into it")


def fingerprint(folder: Path) -> str:
    """12 hexadecimal digits that depend on the names, sizes and modification times of the files.

    They name the prepared data, so that the data of another source are not mistaken for them.
    """
    digest = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            file = Path(path, name)
            # A broken link has no target, but a name and a time.
            status = file.stat() if file.exists() else file.lstat()
            digest.update(
                os.fsencode(file.relative_to(folder))
                + f"\0{status.st_size}\0{status.st_mtime_ns}\n".encode()
            )
    return digest.hexdigest()[:12]

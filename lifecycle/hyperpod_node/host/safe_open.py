"""Opens files without following links. Root of every node may write to our folder on the shared file system, so a link
in it could lead another node's root to any file there: below it, no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Iterator, Optional

from .errors import StepError

SHARED = ".hyperpod"


@contextlib.contextmanager
def place(root: Path, name: str, make: bool = False) -> Iterator[Path]:
    """Return a path without links except its last part; with ``make``, create its folders.

    On the shared file system it goes through a descriptor: a folder that is swapped for a link in the meantime leads
    nowhere else. Raises StepError if one of its folders is already a link, or if its last part is an opened link.
    """
    top, ours, rest = name.partition(f"/{SHARED}/")
    if not ours:
        path = root / name.lstrip("/")
        # Resolving asks for every folder of a path. Only a file that is a link needs it, and a folder that is missing:
        # it may be a link to where it is to be made.
        if path.is_symlink() or (make and not path.parent.is_dir()):
            path = Path(os.path.realpath(path))
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    *folders, last = rest.split("/")
    mounted = Path(os.path.realpath(root / top.lstrip("/")))
    if make:
        mounted.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(str(mounted), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in (SHARED, *folders):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o755, dir_fd=descriptor)
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield Path(f"/proc/self/fd/{descriptor}/{last}")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise StepError(f"{name} is not used: there is a link in it, or no folder, and none is followed") from None
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_without_links(path: Path) -> Iterator[int]:
    """Return a descriptor of a file or a folder. Raises OSError if it is a link."""
    # A pipe would be waited for.
    descriptor = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def content(path: Path) -> Optional[bytes]:
    """Return a file's contents, None for a link or anything but a file."""
    try:
        with open_without_links(path) as found:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                return None
            with os.fdopen(found, "rb", closefd=False) as file:
                return file.read()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def take_lock(descriptor: int) -> bool:
    """Lock an open file for this process until it is closed. Return False if another one has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def holds_lock(name: str) -> Iterator[bool]:
    """Whether this process holds the lock now. Readers of a file may lock it, so only its owner may read it."""
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        yield take_lock(descriptor)
    finally:
        os.close(descriptor)

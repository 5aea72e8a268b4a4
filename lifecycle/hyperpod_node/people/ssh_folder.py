"""A user's ~/.ssh, written by root: whatever the user has put there, nothing outside of it is read or changed."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Iterator

from ..host.errors import StepError
from ..host.host import Host
from ..host.safe_open import take_lock

LOCK = ".hyperpod-lock"
# Other nodes hold the lock for milliseconds; the folder's owner may hold it forever.
LOCK_SECONDS = 20.0


class SshFolder:
    """The folder behind a descriptor: one that is swapped for a link in the meantime leads nowhere else."""

    def __init__(self, host: Host, user: str, descriptor: int) -> None:
        self._host, self._user, self._name = host, user, f"{host.home(user)}/.ssh"
        self._path = Path(f"/proc/self/fd/{descriptor}")

    def read(self, name: str) -> str:
        """Return a file's text; empty if it is missing, a link or no plain file."""
        try:
            descriptor = os.open(str(self._path / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return ""
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read().decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove this file, or the link of its name."""
        with contextlib.suppress(FileNotFoundError):
            (self._path / name).unlink()
            self._host.changes.append(f"{self._name}/{name}")

    def write(self, name: str, text: str, mode: int) -> None:
        """Make a file of the user's contain exactly this, at once or not at all. A link of that name is replaced."""
        path, full = self._path / name, f"{self._name}/{name}"
        if path.exists() and self.read(name) == text:
            right = path.lstat().st_mode == stat.S_IFREG | mode and self._host.owner(full) == self._user
            if right:
                return
        temporary = self._path / f".{name}.{self._host.hostname()}.new"
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(descriptor)
            os.fchmod(descriptor, mode)
            self._host.chown(f"/proc/self/fd/{descriptor}", self._user)
        temporary.replace(path)
        self._host.changes.append(full)


@contextlib.contextmanager
def opened(host: Host, user: str, home_folder: "int | None" = None) -> Iterator[SshFolder]:
    """Open a user's ~/.ssh, created if missing, for one writer at a time. Raises StepError if it is not a folder.

    ``home_folder`` is a descriptor of the home, if the path to it is not only root's of this node.
    """
    name = f"{host.home(user)}/.ssh"
    with contextlib.ExitStack() as stack:

        def opening(path: str, flags: int, folder: "int | None" = None) -> int:
            descriptor = os.open(path, flags, 0o600, dir_fd=folder)
            stack.callback(os.close, descriptor)
            return descriptor

        if home_folder is None:
            home = opening(str(host.path(name).parent), os.O_RDONLY | os.O_DIRECTORY)
        else:
            home = home_folder
        with contextlib.suppress(FileExistsError):
            os.mkdir(".ssh", 0o700, dir_fd=home)
            host.changes.append(name)
        try:
            folder = opening(".ssh", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, home)
            # Two steps write it, and with a shared /home all nodes do.
            lock = opening(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, folder)
        except OSError as error:
            raise StepError(f"{name} is not used, and no link in it is followed: {error.strerror}") from None
        if stat.S_IMODE(os.fstat(folder).st_mode) != 0o700:
            os.fchmod(folder, 0o700)
            host.changes.append(name)
        if host.owner(name) != user:
            host.chown(f"/proc/self/fd/{folder}", user)
            host.changes.append(name)
        host.poll(f"{name}/{LOCK} stayed locked", lambda: take_lock(lock), LOCK_SECONDS)
        yield SshFolder(host, user, folder)

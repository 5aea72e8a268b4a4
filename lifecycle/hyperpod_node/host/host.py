"""The machine as the steps see it: files, commands, time, the network. Tests replace it with a fake."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pwd
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union

from . import kernel_queries, safe_open
from .errors import Cancelled, NotYet, StepError, TooSlow
from .settings import Settings

T = TypeVar("T")
_SIOCGIFMTU = 0x8921
# An item of instance metadata is a line; the kernel's file of figures is a few pages at most.
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Result:
    """A command's result."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def reason(self) -> str:
        """The last line of output, where people look for the reason."""
        # scontrol frames its messages with rows of asterisks.
        lines = [line for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip("* \t")]
        return lines[-1].strip() if lines else f"exit status {self.code}"


@dataclass(frozen=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: str = ""
    date: str = ""


class Host:
    """The real machine. Every wait and every command ends at the deadline of its step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.changes: List[str] = []
        self._cancelled = threading.Event()
        self._step = threading.local()

    # Time

    def now(self) -> float:
        """Return seconds on a clock that never jumps."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970, by the node's clock."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, but stop when a required step has failed."""
        self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Make every step stop at its next wait or command."""
        self._cancelled.set()

    def begin(self, limit: float) -> None:
        """Limit this thread to ``limit`` seconds from now on."""
        self._step.deadline = self.now() + limit

    def remaining(self) -> float:
        """Return the seconds that this thread's step has left."""
        return max(0.0, getattr(self._step, "deadline", float("inf")) - self.now())

    def poll(
        self, what: str, check: Callable[[], Optional[T]], timeout: float, first: float = 0.02, most: float = 0.1
    ) -> T:
        """Return the first true answer of ``check``, with growing intervals. Raises StepError with the last state."""
        end = self.now() + min(timeout, self.remaining())
        wait, state = first, ""
        while True:
            try:
                answer = check()
                if answer:
                    return answer
            except (NotYet, TooSlow) as not_yet:
                state = str(not_yet)
            self._check_cancelled()
            left = end - self.now()
            if left <= 0:
                raise StepError(f"{what} within {timeout:g} s" + (f": {state}" if state else ""))
            self.sleep(min(wait, left))
            wait = min(wait * 1.5, most)

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("a required step failed")

    # Commands

    def which(self, command: str) -> Optional[str]:
        """Return the full path of a command, or None."""
        return shutil.which(command, path=self._search_path())

    def _search_path(self) -> str:
        return os.environ.get("PATH", "/usr/bin:/bin") + ":" + self.settings.extra_path

    def run(
        self,
        *args: str,
        timeout: float = 30,
        check: bool = True,
        stdin: "Union[str, Path, None]" = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> Result:
        """Run a command to its end. Raises StepError if it is missing, too slow or, with ``check``, fails."""
        self._check_cancelled()
        limit = min(timeout, self.remaining())
        result = self.execute(args, limit, stdin, env or {})
        if check and result.code != 0:
            raise StepError(f"`{' '.join(args[:4])}` failed: {result.reason}")
        return result

    def execute(
        self, args: Tuple[str, ...], timeout: float, stdin: "Union[str, Path, None]", env: Mapping[str, str]
    ) -> Result:
        """Run a command on the real machine, for ``run``."""
        # Not taken from PATH twice: the child gets the same search path as we have.
        environment = {**os.environ, "PATH": self._search_path(), "LC_ALL": "C", **env}
        command = self.which(args[0])
        if command is None:
            raise StepError(f"command not found: {args[0]}")
        try:
            file = stdin.open("rb") if isinstance(stdin, Path) else contextlib.nullcontext(subprocess.DEVNULL)
            with file as source:
                done = subprocess.run(
                    (command, *args[1:]),
                    input=stdin if isinstance(stdin, str) else None,
                    stdin=None if isinstance(stdin, str) else source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    universal_newlines=True,
                    errors="replace",
                    timeout=timeout,
                    env=environment,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise TooSlow(f"`{' '.join(args[:4])}` did not end within {timeout:.0f} s") from None
        except OSError as error:
            raise StepError(f"cannot run {args[0]}: {error}") from None
        return Result(done.returncode, done.stdout, done.stderr)

    # Files

    def path(self, name: str) -> Path:
        """Return a path on the node, under the settings' root."""
        return self.settings.root / name.lstrip("/")

    def read(self, name: str) -> Optional[str]:
        """Return a file's text, None if it is missing."""
        data = self.read_bytes(name)
        return None if data is None else io.TextIOWrapper(io.BytesIO(data), "utf-8", "replace").read()

    def read_bytes(self, name: str) -> Optional[bytes]:
        """Return a file's bytes, None if it is missing."""
        try:
            with safe_open.place(self.settings.root, name) as path:
                return safe_open.content(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_all(self, folder: str, names: Iterable[str]) -> Dict[str, str]:
        """Return the texts of a folder's readable files, for the kernel's folders, which have no hostile links."""
        top, found = str(self.path(folder)), {}
        for name in names:
            with contextlib.suppress(OSError), open(f"{top}/{name}", "rb") as file:  # noqa: PTH123 (a thousand of them)
                found[name] = file.read(_MOST_BYTES).decode("utf-8", "replace")
        return found

    def write(self, name: str, text: str, mode: int = 0o644, owner: Optional[str] = None) -> bool:
        """Write a file atomically. Return True if anything changed."""
        return self.write_bytes(name, text.encode("utf-8"), mode, owner)

    def write_bytes(self, name: str, data: bytes, mode: int = 0o644, owner: Optional[str] = None) -> bool:
        """Write bytes atomically. Return True if anything changed."""
        with safe_open.place(self.settings.root, name, make=True) as path:
            with contextlib.suppress(FileNotFoundError):
                if safe_open.content(path) == data:
                    return self.secure(name, mode, owner)
            temporary = path.with_name(f".{path.name}.{self.hostname()}.new")
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                # Private until complete; the name appears only with the right mode and owner.
                os.fchmod(descriptor, mode)
            if owner:
                self.chown(str(temporary), owner)
            temporary.replace(path)
        self.changes.append(name)
        return True

    def secure(self, name: str, mode: int, owner: Optional[str] = None) -> bool:
        """Correct a file's mode and owner. Return True if they were wrong."""
        with safe_open.place(self.settings.root, name) as path, safe_open.open_without_links(path) as descriptor:
            changed = stat.S_IMODE(os.fstat(descriptor).st_mode) != mode
            if changed:
                os.fchmod(descriptor, mode)
            if owner and self.owner(name) != owner:
                self.chown(f"/proc/self/fd/{descriptor}", owner)
                changed = True
        if changed:
            self.changes.append(name)
        return changed

    def owner(self, name: str) -> str:
        """Return the user that owns a file."""
        uid = self.path(name).stat().st_uid
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def chown(self, path: str, owner: str) -> None:
        """Change a file's owner to a user and that user's group."""
        entry = pwd.getpwnam(owner)
        os.chown(path, entry.pw_uid, entry.pw_gid)

    def home(self, user: str) -> Optional[str]:
        """Return a user's home folder, None without such a user."""
        try:
            return pwd.getpwnam(user).pw_dir
        except KeyError:
            return None

    def folder(self, name: str, mode: int = 0o755, owner: Optional[str] = None) -> None:
        """Create a folder if it is missing, and correct its mode."""
        with safe_open.place(self.settings.root, name, make=True) as path:
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                self.changes.append(name)
        self.secure(name, mode, owner)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link point where it should."""
        path = self.path(name)
        # Path.readlink needs Python 3.9.
        if path.is_symlink() and os.readlink(str(path)) == target:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        if temporary.is_symlink():
            temporary.unlink()
        temporary.symlink_to(target)
        temporary.replace(path)
        self.changes.append(name)

    def free(self, name: str) -> int:
        """Return the bytes that a folder's disk has left for everybody; of its nearest parent if it does not exist."""
        left = os.statvfs(str(self._nearest(name)))
        return left.f_bavail * left.f_frsize

    def prove_writable(self, name: str) -> None:
        """Write, read back, delete in a folder or its nearest parent: it may be read-only, full or stale in spite of
        its looks.

        Raises StepError.
        """
        folder = self._nearest(name)
        path, text = folder / f".hyperpod-probe-{self.hostname()}", f"{self.hostname()} {self.wall()}\n"
        try:
            with path.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if path.read_text(encoding="utf-8") != text:
                raise StepError(f"{name} returned something else than was written to it")
        except OSError as error:
            raise StepError(f"cannot write to {name}: {error.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def _nearest(self, name: str) -> Path:
        path = self.path(name)
        while not path.exists():
            path = path.parent
        return path

    def remove(self, name: str) -> bool:
        """Remove a file. Return True if it existed."""
        try:
            self.path(name).unlink()
        except FileNotFoundError:
            return False
        self.changes.append(name)
        return True

    def stuck(self, name: str, timeout: float) -> str:
        """Return why a file system does not answer within so many seconds; empty if it does."""
        return kernel_queries.stuck(self.path(name), timeout)

    # The network

    def hostname(self) -> str:
        """Return the node's name, without a domain."""
        return socket.gethostname().split(".")[0]

    def http(self, method: str, url: str, headers: Mapping[str, str], timeout: float) -> Reply:
        """Make one request, never through a proxy. Raises OSError if nothing answers, or not with HTTP."""
        # Imported lazily: a third of the metrics writer's start-up time, and it sends no requests.
        import http.client
        import urllib.error
        import urllib.request

        request = urllib.request.Request(url, method=method, headers=dict(headers))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout) as answer:
                return Reply(answer.status, answer.read(_MOST_BYTES).decode("utf-8"), answer.headers.get("Date", ""))
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, "", error.headers.get("Date", ""))
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"no HTTP ({type(error).__name__})") from None

    def answers(self, address: str, port: int, timeout: float = 1.0) -> bool:
        """Whether a program accepts connections there."""
        try:
            with socket.create_connection((address, port), timeout=timeout):
                return True
        except OSError:
            return False

    def resolve(self, name: str) -> List[str]:
        """Return a name's IPv4 addresses, possibly none."""
        try:
            return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)})
        except OSError:
            return []

    def addresses(self) -> List[str]:
        """Return the node's own IPv4 addresses, as the kernel's routing table has them, without loopback."""
        found, last = [], ""
        for line in (self.read("/proc/net/fib_trie") or "").splitlines():
            words = line.split()
            if words and words[0] in ("|--", "+--"):
                last = words[1].split("/")[0]
            elif "host" in words and "LOCAL" in words and not last.startswith("127.") and last not in found:
                found.append(last)
        return found

    def default_interface(self) -> Optional[str]:
        """Return the interface that holds the default route."""
        for line in (self.read("/proc/net/route") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
                return fields[0]
        return None

    def mtu(self, interface: str) -> Optional[int]:
        """Return an interface's largest packet, bytes."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                answer = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("256s", interface.encode()[:15]))
            except OSError:
                return None
        return int(struct.unpack_from("i", answer, 16)[0])

    def mounts(self) -> Mapping[str, Tuple[str, str]]:
        """Map each mount point to source and type, as the kernel has them now."""
        table = {}
        for line in (self.read("/proc/self/mounts") or "").splitlines():
            fields = line.split()
            if len(fields) >= 3:
                table[fields[1]] = (fields[0], fields[2])
        return table

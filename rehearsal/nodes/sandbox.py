"""The sandbox that a run's hosts live in, and how the run's own process reaches into namespaces.

Everything depends on one process. When it dies, the kernel kills its PID namespace and drops its mounts and links. It
dies with the run's process, however that ends. Outside the sandbox nothing is created: no file, mount or link.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")
# Marks every process of a run for the audit. The value identifies the run.
MARK = "HYPERPOD_REHEARSAL"
# Where the sandbox mounts its tmpfs: a directory that every Debian has and no process here needs.
BOX = "/mnt"
# A run's control group; its name has the run's mark.
GROUP = "hyperpod-rehearsal-"
_CLONE_NEWNET = 0x40000000
# /proc stays the outer one, where a process sees its outer PID, which the run needs.
_KEEPER = f"""
mount --make-rprivate / && mount -t tmpfs -o mode=755 hyperpod-rehearsal {BOX} && ip link set lo up &&
mkdir {BOX}/cgroup && mount -t cgroup2 cgroup2 {BOX}/cgroup &&
read -r pid rest < /proc/self/stat && echo "$pid" && exec sleep infinity
"""
# Only control groups outlive their processes. This script removes them after the run, however the run ends: its stdin
# closes then.
_SWEEPER = f"""
mount --make-rprivate / && mount -t cgroup2 cgroup2 {BOX}; read -r end
for try in 1 2 3 4 5 6 7 8 9 10; do
  [ -d {BOX}/{GROUP}"$1" ] || exit 0
  find {BOX}/{GROUP}"$1" -depth -type d -exec rmdir {{}} + 2> /dev/null || sleep 0.2
done
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SandboxError(Exception):
    """A namespace, mount or link could not be made."""


class Sandbox:
    """The outer PID, mount and network namespaces. Use as a context manager, on a thread that outlives it."""

    def __init__(self) -> None:
        self.run_id = f"{os.getpid()}-{id(self):x}"
        self.environment = {"PATH": _PATH, "LANG": "C.UTF-8", MARK: self.run_id}
        self.pid = 0
        self._keeper: subprocess.Popen[str] | None = None
        self._sweeper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Sandbox:
        namespaces = ("--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child")
        self._sweeper = subprocess.Popen(
            ("unshare", "--mount", "sh", "-c", _SWEEPER, "sweeper", self.run_id),
            stdin=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        self._keeper = subprocess.Popen(
            ("setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "sh", "-c", _KEEPER),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            # The run handles Ctrl-C.
            start_new_session=True,
        )
        answer = read_line(self._keeper.stdout)
        if not answer.isdigit():
            self._keeper.kill()
            raise SandboxError(f"no namespaces: {self._keeper.communicate()[1].strip() or answer}")
        self.pid = int(answer)
        return self

    def __exit__(self, *_: object) -> None:
        if self._keeper is not None:
            kill(self.pid)
            self._keeper.kill()
            self._keeper.communicate()
            self._keeper = None
        if self._sweeper is not None:
            self._sweeper.communicate()
            self._sweeper = None

    def path(self, inside: str) -> Path:
        """The path by which the run's process reaches a file in the sandbox's tmpfs."""
        return Path(f"/proc/{self.pid}/root{BOX}") / inside

    def command(self, *argv: str) -> list[str]:
        """A command line that runs ``argv`` in the sandbox's mount, PID and IPC namespaces."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-i", *argv]

    def share(self, name: str, source: str) -> None:
        """Create a tmpfs under ``lustre/`` for hosts to mount. It names ``source`` as its source."""
        self.path(f"lustre/{name}").mkdir(parents=True)
        self._run(self.command("mount", "-t", "tmpfs", "-o", "mode=755", source, f"{BOX}/lustre/{name}"))

    def resize(self, name: str, kilobytes: int = 0) -> None:
        """Leave this much space on a file system under ``lustre/``; without a number, all there is."""
        path = os.statvfs(self.path(f"lustre/{name}"))
        used = (path.f_blocks - path.f_bfree) * path.f_frsize // 1024
        size = f"{used + kilobytes}k" if kilobytes else "50%"
        self._run(self.command("mount", "-o", f"remount,size={size}", f"{BOX}/lustre/{name}"))

    def ip(self, lines: Sequence[str], *, of: int = 0, family: str = "") -> None:
        """Run ``ip`` commands, one a line, in the network namespace of process ``of`` (by default the sandbox's).

        ``family``: the option for a family of addresses, for commands that name no address.
        """
        program = ["ip", family] if family else ["ip"]
        self._run(["nsenter", "-t", str(of or self.pid), "-n", *program, "-batch", "-"], "\n".join(lines) + "\n")

    def _run(self, argv: Sequence[str], text_in: str = "") -> None:
        done = subprocess.run(argv, input=text_in, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SandboxError(f"{' '.join(argv)}: {done.stderr.strip()}")


def in_network(pid: int, act: Callable[[], T]) -> T:
    """Run ``act`` in the network namespace of a process. A socket that it creates stays there.

    Uses a separate thread, since Linux sets network namespaces per thread.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(descriptor)
            result.append(act())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def kill(pid: int) -> None:
    """Send SIGKILL if the process still exists."""
    if pid > 0:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def read_line(stream: IO[str] | None) -> str:
    """The next line of a child's output without its newline, or empty if the child has ended."""
    assert stream is not None
    return stream.readline().strip()

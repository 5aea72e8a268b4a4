"""Processes of a run: each has a log, and none outlives the run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_GRACE_SECONDS = 5.0


@dataclass
class Process:
    """A running program and its log."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.popen.poll()

    def last_words(self, lines: int = 3) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def stop(self) -> None:
        """End it and everything it started, politely first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.popen.poll() is not None:
                break
            os.killpg(self.popen.pid, number)
            try:
                self.popen.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                continue


@dataclass
class Processes:
    """Starts processes and, at the end, ends those that are left, the youngest first."""

    folder: Path
    running: list[Process] = field(default_factory=list)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Process:
        """Start a program in a process group of its own."""
        log = self.folder / f"{name}.log"
        # Even where this process is killed and can tidy nothing up, its children go with it.
        bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as file:
            popen = subprocess.Popen(
                [*bound, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        process = Process(name, log, popen)
        self.running.append(process)
        return process

    def stop(self, process: Process) -> None:
        """End one."""
        process.stop()
        if process in self.running:
            self.running.remove(process)

    def stop_all(self) -> None:
        """End all."""
        while self.running:
            self.running.pop().stop()


def free_ports(count: int) -> list[int]:
    """TCP ports that nobody listens on now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()

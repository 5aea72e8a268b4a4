"""The processes of a run. Each has a log, and none outlives the run."""

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
        """The exit code, or None while the program runs."""
        return self.popen.poll()

    def last_words(self, lines: int = 3) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])

    def stop(self) -> None:
        """Stop the program and everything it started: SIGTERM first, then SIGKILL."""
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
    """Starts processes, and at the end stops the remaining ones, newest first."""

    folder: Path
    running: list[Process] = field(default_factory=list)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a program in its own process group."""
        log = self.folder / f"{name}.log"
        # If this process is killed and cannot clean up, its children end too.
        bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as file:
            popen = subprocess.Popen(
                [*bound, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        process = Process(name, log, popen)
        self.running.append(process)
        return process

    def stop(self, process: Process) -> None:
        """Stop one process."""
        process.stop()
        if process in self.running:
            self.running.remove(process)

    def stop_all(self) -> None:
        """Stop all processes."""
        while self.running:
            self.running.pop().stop()


def free_ports(count: int) -> list[int]:
    """Different TCP ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()

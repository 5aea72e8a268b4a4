"""Submits, lists, follows and cancels Slurm jobs from another machine, by commands on the controller.

Files go there in the commands themselves. By the stack's bucket they would need the right to write what nodes run as
root.
"""

import base64
import gzip
import io
import math
import re
import secrets
import shlex
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hyperpod_node.host.settings import Settings

from ..failures import Failure, bad_input, cannot_know
from ..jobs.batch import Submission
from ..jobs.run import TimedOut
from ..target import Target
from ..terminal.command_line import printable
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

# A parameter of StartSession has 65,535 characters at most (Systems Manager API Reference, StartSession), and quotes
# around quotes take some.
_PART = 40_000
_SECONDS = 120.0
_FOLDER, _LIBRARY = "/fsx/checkpoints", "/opt/hyperpod/lib/training"
# Seconds that the controller waits for something new before it answers, and then for what comes right after it.
_PATIENCE, _SETTLE = 30, 2
# Bytes of a log in one answer.
_AT_ONCE = 1_000_000
_ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
FORGOTTEN, _SILENT = "FORGOTTEN", "SILENT"
_PATH = f"export PATH=$PATH:{Settings.extra_path}"
_LIST = "squeue --noheader --states=all --Format='JobArrayID:|,UserName:|,State:|,Reason:|,Name:{end}'"
# A folder that is the user's own, because what is in it runs as them.
_ADD = """
bash {library}/own_folder.sh {parent} && mkdir -p {folder} && cd {folder} || exit
printf %s {part} >> .files || exit
"""
_SUBMIT = """
base64 -d .files | tar -xz && rm .files && {command} && exit
cd / && rm -rf {folder}
exit 1
"""
_LOOK = Path(__file__).with_name("slurm_look.sh").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job now, by Slurm's words. ``said`` is what its log has from where it was asked for."""

    id: str
    state: str
    user: str
    reason: str
    said: bytes

    @property
    def ended(self) -> bool:
        """Whether it will not run again."""
        return self.state in _ENDED or self.state == FORGOTTEN

    @property
    def phase(self) -> str:
        """What it is doing, in words."""
        if self.state == _SILENT:
            return "Slurm does not answer"
        waits = f": {self.reason}" if self.state == "PENDING" and self.reason not in ("", "None") else ""
        return self.state.lower() + waits


class SlurmJobs:
    """The jobs of one cluster. Every method raises Failure where the controller cannot be asked."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._head: Node = cluster_nodes.controller(cluster_nodes.list_nodes(target))

    def submit(self, job: Submission) -> str:
        """The number that Slurm gives it. Raises Failure, with nothing left there, where Slurm refuses it."""
        parent = f"{_FOLDER}/jobs-{job.user}"
        folder = f"{parent}/{job.name}-{secrets.token_hex(4)}"
        packed = _packed(job)
        places = {"library": _LIBRARY, "parent": parent, "folder": folder}
        for start in range(0, len(packed), _PART):
            script = _ADD.format(part=packed[start : start + _PART], **places)
            if start + _PART >= len(packed):
                script += _SUBMIT.format(command=job.command, folder=folder)
            ran = self._run(script, user=job.user)
            if ran.code:
                lines = [line for line in ran.output.splitlines() if line.strip()]
                raise Failure(
                    f"{job.name} was not submitted: {lines[-1] if lines else ran.code}",
                    f"hyperpod node list {self._target.stack}; people: hyperpod node users {self._target.stack}",
                )
        found = re.search(r"^Submitted batch job (\d+)", ran.output, re.MULTILINE)
        if found is None:
            raise Failure(f"sbatch did not print the job's number: {ran.output.strip()}")
        return found[1]

    def jobs(self) -> list[dict[str, str]]:
        """What the queue has, and what ended in the last minutes: name, number, user and state of each job."""
        end = f"|{secrets.token_hex(8)}"
        ran = self._run(_LIST.format(end=end))
        if ran.code:
            raise Failure(f"squeue on the controller ended with {ran.code}: {ran.output.strip()}")
        rows = []
        for record in ran.output.split(end):
            words = record.lstrip("\n").split("|", 4)
            if len(words) == 5:
                number, user, state, reason, name = words
                seen = Seen(id=number, state=state, user=user, reason=reason, said=b"")
                rows.append({"job": printable(name, keep=""), "id": number, "user": user, "state": seen.phase})
        return rows

    def look(self, job: str, start: int = 0, before: str = "", patience: int = 0) -> Seen:
        """A job, by its number or as the newest of its name, and what its log has from byte ``start`` on.

        With ``patience`` in seconds the answer waits for more of the log, or for another state than ``before``.
        """
        which = {"job": job, "name": ""} if job.isdigit() else {"job": "", "name": job}
        given = {
            **which,
            "from": start,
            "before": before,
            "patience": patience,
            "settle": _SETTLE,
            "most": _AT_ONCE,
            "all": _FOLDER,
        }
        given["ended"] = f"^({'|'.join(sorted(_ENDED))}|{FORGOTTEN})"
        words = [f"{name}={shlex.quote(str(value))}" for name, value in given.items()]
        ran = self._run("\n".join([*words, _LOOK]), patience)
        first, _, rest = ran.output.partition("\n")
        words = first.split("|", 3)
        if ran.code == 4:
            raise bad_input(f"there is no job {job}", f"hyperpod job list {self._target.stack}")
        if ran.code or len(words) != 4:
            raise cannot_know(f"the controller does not report on {job}: {ran.output.strip()[-200:]}")
        said = gzip.decompress(base64.b64decode(rest)) if rest.strip() else b""
        return Seen(id=words[0], state=words[1], user=words[2], reason=words[3], said=said)

    def follow(
        self, job: str, on_line: Callable[[str], None], on_phase: Callable[[str], None], timeout: float
    ) -> tuple[bool, list[str]]:
        """Pass on what a job says until it ends. Whether it succeeded, and its lines.

        Raises TimedOut after ``timeout`` seconds; the job goes on.
        """
        end, start, state, rest = time.monotonic() + timeout, 0, "", b""
        lines: list[str] = []
        while True:
            left = max(0.0, end - time.monotonic())
            seen = self.look(job, start, state, math.ceil(min(_PATIENCE, left)))
            start, state = start + len(seen.said), seen.state
            on_phase(seen.phase)
            *whole, rest = (rest + seen.said).split(b"\n")
            done = seen.ended and len(seen.said) < _AT_ONCE
            for line in [*whole, *([rest] if done and rest else [])]:
                lines.append(line.decode(errors="replace"))
                on_line(lines[-1])
            if done:
                break
            if not left:
                raise TimedOut(f"{job} did not end within {timeout:.0f} s: {seen.phase}", queued=state == "PENDING")
        if state == FORGOTTEN:
            raise cannot_know(f"Slurm has forgotten how {job} ended", "hyperpod:slurm.accounting keeps it")
        return state == "COMPLETED", lines

    def cancel(self, number: str) -> None:
        """End a job, by its number."""
        ran = self._run(f"scancel {number}")
        if ran.code:
            raise Failure(f"scancel {number}: {ran.output.strip()}")

    def _run(self, script: str, patience: float = 0, user: str = "") -> sessions.Remote:
        """Run a script as root, or as a user who has logged in."""
        shell = f"runuser -l {user} -s /bin/bash" if user else "bash"
        command = f"sudo -n {shell} -c {shlex.quote(f'{_PATH}{chr(10)}{script}')}"
        return sessions.run_remote(self._target, self._head, command, _SECONDS + patience)


def _packed(job: Submission) -> str:
    """The job's files as an archive in letters."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in job.files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data := text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return base64.b64encode(buffer.getvalue()).decode()

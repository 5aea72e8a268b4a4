"""However a rehearsal ends, nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.nodes import audit
from rehearsal.nodes.sandbox import MARK

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.root, pytest.mark.slow]


def _marked(run: int) -> list[str]:
    """Processes that a rehearsal, the process ``run``, has made."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={run}-".encode() in (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
            except OSError:
                continue
    return found


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("delay", [0.0, 2.0])
def test_killed(tmp_path: Path, number: signal.Signals, delay: float) -> None:
    command = [sys.executable, "-m", "rehearsal", "nodes", "--json", str(tmp_path / "found.json")]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(_marked(run.pid)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.poll() is None
    time.sleep(delay)
    run.send_signal(number)
    assert run.wait(30) == (-9 if number == signal.SIGKILL else 1)
    while (left := _marked(run.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    if number != signal.SIGKILL:
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["failure"] == f"ended by {number.name}"
        assert found["leftovers"] == []


def test_audit_finds_what_is_left() -> None:
    before = audit.look()
    left = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "one"})
    try:
        assert [line for line in audit.leftovers(before, "one", audit.Namespaces()) if str(left.pid) in line]
    finally:
        left.kill()
        left.wait()
    assert audit.leftovers(before, "one", audit.Namespaces()) == []


def test_audit_finds_a_process_in_a_namespace_of_the_run_and_none_of_another_run() -> None:
    before = audit.look()
    alone = ("unshare", "--net", "sleep", "60")
    with audit.Namespaces() as made, subprocess.Popen(alone) as run, subprocess.Popen(alone) as other:
        try:
            own = Path("/proc/self/ns/net").readlink()
            while own in {Path(f"/proc/{one.pid}/ns/net").readlink() for one in (run, other)}:
                time.sleep(0.01)
            made.note([run.pid])
            found = audit.leftovers(before, "none", made)
        finally:
            run.kill()
            other.kill()
    assert found == [f"process {run.pid} (sleep)"]

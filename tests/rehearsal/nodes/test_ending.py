"""However a rehearsal ends, it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operations.failures import Exit
from rehearsal.nodes import audit
from rehearsal.nodes.sandbox import GROUP, MARK

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.root, pytest.mark.slow]


def _marked(run: int) -> list[str]:
    """Processes that a rehearsal, the process ``run``, has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={run}-".encode() in (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
            except OSError:
                continue
    return found


def _groups(run: subprocess.Popen[bytes]) -> list[str]:
    """Control groups that a rehearsal has created, which outlive its processes."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    folders = [Path(row[1]) for row in rows if row[2] == "cgroup2"]
    return [path.name for folder in folders for path in folder.glob(f"{GROUP}{run.pid}-*")]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("number", "delay"),
    [(signal.SIGINT, 0.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 0.0), (signal.SIGKILL, 2.0)],
)
def test_killed(tmp_path: Path, number: signal.Signals, delay: float) -> None:
    command = [sys.executable, str(ROOT / "hyperpod.py"), "rehearse", "nodes", "--write", str(tmp_path / "found.json")]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(started := _marked(run.pid)) < 5 and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.2)
    assert len(started) >= 5, f"the rehearsal has only {started}; its exit code: {run.poll()}"
    time.sleep(delay)
    run.send_signal(number)
    assert run.wait(60) == (-9 if number == signal.SIGKILL else Exit.CANCELLED)
    deadline = time.monotonic() + 60
    while (left := _marked(run.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    while (groups := _groups(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not groups
    if number != signal.SIGKILL:
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["failure"] == f"ended by {number.name}"
        assert found["leftovers"] == []


def test_audit_finds_what_is_left() -> None:
    before = audit.look()
    left = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: "one"})
    # A program starts before the kernel shows its environment.
    while not Path(f"/proc/{left.pid}/environ").read_bytes():
        time.sleep(0.01)
    try:
        assert [line for line in audit.leftovers(before, "one", audit.Namespaces()) if str(left.pid) in line]
    finally:
        left.kill()
        left.wait()
    assert audit.leftovers(before, "one", audit.Namespaces()) == []


def _alone() -> tuple[subprocess.Popen[bytes], int]:
    """A program that keeps a process in a separate PID namespace, and that process."""
    keeper = subprocess.Popen(("unshare", "--net", "--pid", "--fork", "--kill-child", "sleep", "60"))
    children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
    while not (found := children.read_text().split()) or "sleep" not in Path(f"/proc/{found[0]}/comm").read_text():
        time.sleep(0.01)
    return keeper, int(found[0])


def test_audit_finds_a_process_in_a_namespace_of_the_run_and_none_of_another_run() -> None:
    before = audit.look()
    (run, inside), (other, _) = _alone(), _alone()
    with audit.Namespaces() as made:
        try:
            made.note([inside])
            found = audit.leftovers(before, "none", made)
        finally:
            for one in (run, other):
                one.kill()
                one.wait()
    assert found == [f"process {inside} (sleep)"]


def test_the_audit_holds_no_network_or_a_host_without_power_would_answer() -> None:
    keeper, inside = _alone()
    with audit.Namespaces() as made:
        made.note([inside])
        keeper.kill()
        keeper.wait()
        held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [link for link in held if link.startswith("pid:")]
    assert not [link for link in held if link.startswith("net:")]

"""The Pulumi CLI as a process: it ends when its caller is interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.engine import pulumi_cli as commands
from operations.engine.pulumi_cli import InterruptibleCommand
from operations.terminal.interrupts import Interrupted, interruptible
from rehearsal.engines.real import _end_plugins
from rehearsal.processes import with_variable

# Prints its version, or else runs until it has been asked to stop a number of times.
CLI = """#!{python} -S
import signal, sys, time
from pathlib import Path

if "version" in sys.argv:
    sys.exit(print("v3.300.0"))

asked = 0

def stop(number, frame):
    global asked
    asked += 1
    if asked == {patience}:
        Path("{folder}/stopped").touch()
        sys.exit(1)

signal.signal(signal.SIGINT, stop)
Path("{folder}/started").write_text("")
while True:
    time.sleep(0.05)
"""
NEVER = 0


@pytest.fixture
def ignored() -> Iterator[None]:
    """Ignore signals, like a process that a shell starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def play_cli(folder: Path, patience: int) -> InterruptibleCommand:
    program = folder / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(CLI.format(python=sys.executable, folder=folder, patience=patience))
    program.chmod(0o755)
    return InterruptibleCommand(root=str(folder))


def interrupt_when_it_works(folder: Path) -> None:
    def wait() -> None:
        while not (folder / "started").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait).start()


@pytest.mark.usefixtures("ignored")
def test_an_interrupted_caller_takes_the_cli_along(tmp_path: Path) -> None:
    cli = play_cli(tmp_path, patience=1)
    interrupt_when_it_works(tmp_path)
    with interruptible(), pytest.raises(Interrupted, match="SIGINT"):
        cli.run(["up"], str(tmp_path), {})
    assert (tmp_path / "stopped").exists()


@pytest.mark.parametrize("patience", [2, NEVER])
def test_a_cli_that_does_not_stop_is_asked_again_and_then_killed(
    patience: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_FINISHES_SECONDS", 0.05)
    monkeypatch.setattr(commands, "_ABANDONS_SECONDS", 0.05 if patience == NEVER else 0.5)
    cli = play_cli(tmp_path, patience)
    interrupt_when_it_works(tmp_path)
    with interruptible(), pytest.raises(Interrupted):
        cli.run(["up"], str(tmp_path), {"BELONGS_TO": str(tmp_path)})
    assert (tmp_path / "stopped").exists() == (patience != NEVER)
    assert with_variable("BELONGS_TO", str(tmp_path)) == set()


def test_what_fails_because_of_an_interruption_is_an_interruption() -> None:
    def swallowed() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise AttributeError("a module that was half imported") from None

    with pytest.raises(Interrupted, match="SIGTERM"), interruptible():
        swallowed()
    with pytest.raises(AttributeError), interruptible():
        raise AttributeError("of its own")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
def test_only_plugins_are_ended_and_no_program_of_a_shell_that_sourced_the_environment(tmp_path: Path) -> None:
    plugin = tmp_path / "pulumi-resource-aws"
    plugin.symlink_to(shutil.which("sleep") or "")
    editor = tmp_path / "vi"
    editor.symlink_to(shutil.which("sleep") or "")

    def started(program: Path, home: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program, "60"], env={**os.environ, "PULUMI_HOME": f"{tmp_path}/{home}"})

    with (
        started(plugin, "home") as left,
        started(plugin, "another") as other,
        started(editor, "home") as of_somebody,
    ):
        # Until they run, their environment and their name are this process's.
        for one in (left, other, of_somebody):
            while str(tmp_path).encode() not in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                time.sleep(0.01)
        _end_plugins(tmp_path / "home")
        assert left.wait(5) == -signal.SIGKILL
        for one in (other, of_somebody):
            assert one.poll() is None
            one.kill()

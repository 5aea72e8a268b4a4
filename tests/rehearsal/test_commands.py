"""The Pulumi CLI as a process: it ends when whoever waits for it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from rehearsal.commands import InterruptibleCommand
from rehearsal.real_engine import _end_plugins

# Says its version, and otherwise works until it is asked to stop.
CLI = """#!/bin/sh
case "$*" in
*version*) echo v3.300.0; exit 0 ;;
esac
trap 'touch {folder}/stopped; exit 1' INT
touch {folder}/started
while :; do sleep 0.05; done
"""


class Interrupted(BaseException):
    """What a signal's handler raises."""


def test_an_interrupted_caller_takes_the_cli_along(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(CLI.format(folder=tmp_path))
    program.chmod(0o755)
    cli = InterruptibleCommand(root=str(tmp_path))

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    def when_it_works() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    threading.Thread(target=when_it_works).start()
    began = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            cli.run(["up"], str(tmp_path), {})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (tmp_path / "stopped").exists()
    assert time.monotonic() - began < 10


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc")
def test_plugins_that_an_interrupted_cli_leaves_behind_are_ended_and_no_other(tmp_path: Path) -> None:
    def plugin(home: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "PULUMI_HOME": f"{tmp_path}/{home}"})

    with plugin("home") as left, plugin("another") as other:
        time.sleep(0.2)
        _end_plugins(tmp_path / "home")
        assert left.wait(5) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()

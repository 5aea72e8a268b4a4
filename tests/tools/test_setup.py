"""`make test` sets up what it needs by itself, and with SETUP=no says what it leaves out."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine that lacks everything that can be installed, of programs that record how they are called."""
    programs = {
        "make": f'echo "make $*" >> {tmp_path}/calls',
        "go": "",
        "apt-get": "",
        "chrt": 'shift 2; exec "$@"',
        "id": 'echo "${AS_USER:-0}"',
        "python": 'case "$2" in *nodes*) echo "$NODES";; *) echo "$PROGRAMS";; esac',
    }
    (tmp_path / "bin").mkdir()
    for name, does in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def run(machine: Path, *words: str, without: str = "", **environment: str) -> tuple[list[str], list[str], int]:
    """What is said, what is called, and the exit code."""
    if without:
        (machine / "bin" / without).unlink()
    # Of the real machine's programs, those that the script itself needs.
    for name in ("bash", "env", "dirname", "mktemp", "cat", "rm", "sleep", "true", "false"):
        if not (machine / "bin" / name).exists():
            (machine / "bin" / name).symlink_to(f"/usr/bin/{name}")
    environment = {
        "PATH": str(machine / "bin"),
        "PYTHON_OF_TESTS": str(machine / "bin/python"),
        "NODES": "Debian packages",
        "PROGRAMS": "etcd, kueue",
        **environment,
    }
    command = [str(ROOT / "tools/with_setup.sh"), *(words or ("make", "the-tests"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    calls = machine / "calls"
    return done.stdout.splitlines(), sorted(calls.read_text().splitlines()) if calls.exists() else [], done.returncode


def test_root_on_debian_with_go_gets_everything_before_the_tests(machine: Path) -> None:
    said, called, code = run(machine)
    assert (said[:1], code) == (
        ["Building Kubernetes' programs beside the tests, once: minutes to half an hour of an idle processor."],
        0,
    )
    assert set(called) >= {"make node-packages", "make the-tests"}
    assert not [line for line in said if line.startswith("Left out")]


def test_what_is_there_is_not_installed_again(machine: Path) -> None:
    assert run(machine, NODES="", PROGRAMS="") == ([], ["make the-tests"], 0)


def test_without_root_or_go_what_is_left_out_is_said(machine: Path) -> None:
    said, called, code = run(machine, without="go", AS_USER="1000")
    assert said == [
        "Left out: tests on Kubernetes, since there is no Go here to build etcd, kueue with",
        "Left out: tests on simulated nodes, which need root on Debian, and lack Debian packages",
    ]
    assert (called, code) == (["make the-tests"], 0)


def test_setup_no_installs_nothing_and_says_what_it_leaves_out(machine: Path) -> None:
    said, called, code = run(machine, SETUP="no")
    assert said == [
        "Left out: tests on simulated nodes, which lack Debian packages (make node-packages)",
        "Left out: tests on Kubernetes, which lack etcd, kueue (make kubernetes-tools)",
    ]
    assert (called, code) == (["make the-tests"], 0)


def test_tests_that_fail_fail_the_command(machine: Path) -> None:
    assert run(machine, "false", PROGRAMS="")[2] == 1
    assert run(machine, "false", SETUP="no")[2] == 1


def test_make_test_hands_its_parts_to_the_set_up() -> None:
    words = ["make", "--dry-run", "SETUP=no", "VENV=none", "--old-file=none/.tests", "test"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    # Make runs what names $(MAKE) even then: the script is to be seen, not run.
    shown = subprocess.run([*words, "MAKE=:"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "SETUP=no PYTHON_OF_TESTS=none/bin/python tools/with_setup.sh" in shown.stdout

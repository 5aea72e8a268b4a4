"""The first hour as people have it: a clone, the first command, a stack of their own, Tab, and what goes wrong.

What is committed is cloned, and `make` installs the packages for the distribution's own Python. Nothing that is typed
ends in a traceback, and the exit codes are those of docs/operations.md.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect
import pytest

from operations.failures import Exit
from tests.rows import each
from tests.support import ROOT

# In one process, which makes the clone.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("first hour")]
DEBIAN = "/usr/bin/python3"
# What terminals are steered with: colours, cursor, modes, titles.
STEERING = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[=>78])")
CTRL_C, CTRL_D, CTRL_U, DOWN = "\x03", "\x04", "\x15", "\x1b[B"


@dataclass
class Clone:
    """A clone with its packages, and a home without credentials."""

    folder: Path
    environment: dict[str, str]
    installed: str

    def run(self, line: str) -> tuple[int, str, str]:
        """Run a line of shell, without a terminal: its exit code, standard output and standard error."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=240, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    def type(self, program: str, *words: str) -> Any:
        """Start a program at a terminal of 80 columns."""
        return pexpect.spawn(
            program, list(words), cwd=str(self.folder), env=self.environment, encoding="utf-8", dimensions=(24, 80),
            timeout=120,
        )  # fmt: skip

    def stacks(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("Pulumi.*.yaml"))


def end(terminal: Any) -> tuple[int | None, str]:
    """The exit code of a program, once it has ended, and what it has said since it was last asked."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    said = STEERING.sub("", terminal.before)
    assert "Traceback" not in said
    return terminal.exitstatus, said


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    folder, home = tmp_path_factory.mktemp("first") / "clone", tmp_path_factory.mktemp("home")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    caches = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    environment = {
        "HOME": str(home), "PATH": f"{folder}/venv/bin:/usr/bin:/bin", "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "AWS_EC2_METADATA_DISABLED": "true", "XDG_CACHE_HOME": caches, **kept,
    }  # fmt: skip
    able = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    own = subprocess.run([DEBIAN, "-c", able], capture_output=True, check=False).returncode == 0
    made = subprocess.run(
        ["make", "venv/.ready", f"PYTHON={DEBIAN if own else sys.executable}"], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if made.returncode and re.search("error sending request|Failed to fetch|connection|resolve", made.stdout):
        pytest.skip(f"the package registry is out of reach: {made.stdout.strip().splitlines()[-1]}")
    assert made.returncode == 0, made.stdout
    return Clone(folder, environment, made.stdout)


def test_the_first_command_says_what_it_does_and_its_next_step_can_be_copied(clone: Clone) -> None:
    assert clone.installed.splitlines()[0].startswith("Making venv/ with Python 3.")
    code, out, err = clone.run("venv/bin/hyperpod rehearse dev")
    assert (code, err) == (Exit.GOOD, "")
    said, following = out.splitlines()[-2:]
    assert said.startswith("dev is good: up in ")
    assert following == "Next: hyperpod quotas dev"
    code, _, err = clone.run(following.removeprefix("Next: "))
    assert (code, "credentials" in err) == (Exit.CANNOT_KNOW, True)


def test_a_quiet_rehearsal_draws_no_bar_at_a_terminal(clone: Clone) -> None:
    loud = end(clone.type("hyperpod", "rehearse", "dev"))
    quiet = end(clone.type("hyperpod", "rehearse", "dev", "-q"))
    assert (loud[0], quiet[0]) == (Exit.GOOD, Exit.GOOD)
    for word in ("Rehearsing dev", "s here"):
        assert word in loud[1]
        assert word not in quiet[1]
    assert "dev is good" in quiet[1]


def test_a_stack_is_made_by_answers_of_which_the_wrong_ones_are_told(clone: Clone) -> None:
    terminal = clone.type("hyperpod", "init")
    for question, answers in {
        "Name": (("Bad", "cannot be a stack's name"), ("dev", "Pulumi.dev.yaml exists already"), ("mine", "")),
        "Scheduler": ((DOWN, ""),),
        "Region": (("us-east-2", ""),),
        r"Instance type, \$ an hour": (("p5.48", r"\$66.05 .*EFA 32 .*8 x H100, 80 GiB"), ("", "")),
        "Zone": (("", ""),),
        "Workers": (("two", "a whole number, 1 or more"), ("2.5", ""), ("0", ""), (" 3", "")),
    }.items():
        terminal.expect(question)
        for answer, said in answers:
            # A list shows at once what is typed, everything else once it is given.
            terminal.send(answer if question.startswith("Instance") and answer else f"{answer}\r")
            if said:
                terminal.expect(said)
                terminal.send("" if question.startswith("Instance") else CTRL_U)
            elif question == "Workers" and answer != " 3":
                terminal.send(CTRL_U)
    code, said = end(terminal)
    assert code == Exit.GOOD
    assert "Pulumi.mine.yaml: 3 x ml.p5.48xlarge in us-east-2" in said
    assert clone.run("hyperpod cost mine -q")[0] == Exit.GOOD


@each(
    (
        ("Name", CTRL_C),
        ("Name", CTRL_D),
        ("Scheduler", CTRL_D),
    )
)
def test_a_question_is_left_by_ctrl_c_and_ctrl_d_alike(question: str, keys: str, clone: Clone) -> None:
    before = clone.stacks()
    terminal = clone.type("hyperpod", "init", *(["other"] if question != "Name" else []))
    terminal.expect(question)
    terminal.send(keys)
    code, said = end(terminal)
    assert (code, said.split()[-1]) == (Exit.CANCELLED, "Cancelled.")
    assert clone.stacks() == before


def test_tab_completes_in_a_shell(clone: Clone) -> None:
    shell = clone.type("bash", "--norc", "--noprofile")
    shell.sendline("PS1='> '; eval \"$(hyperpod --show-completion bash)\"; echo re''ady")
    shell.expect("ready")
    for typed, completed in (
        ("hyperpod expl", "explain "),
        ("hyperpod explain fsx.storageG", "fsx.storageGiB "),
        ("hyperpod cost slurm-g", "slurm-gpu "),
        ("hyperpod node connect slurm-gpu cont", "controller "),
        ("hyperpod types p5en", r"p5en\.48xlarge "),
    ):
        shell.send(f"{CTRL_U}{typed}\t")
        shell.expect(completed)
    shell.sendline(f"{CTRL_U}exit")
    assert end(shell)[0] == 0


def test_a_broken_file_is_told_with_its_line(clone: Clone) -> None:
    region = "config:\n  aws:region: us-west-2\n"
    broken = {
        "tab": ("config:\n\taws:region: us-west-2\n", "line 2: a tab"),
        "empty": ("", "the file is empty"),
        "binary": ("\x00\x01\x02\x9f\n", "line 1: "),
        "twice": (f"{region}  hyperpod:size: small\n  hyperpod:size: large\n", "line 4: hyperpod:size is set again"),
        "spelt": (f"{region}  hyperpo:size: small\n", "line 3: hyperpo:size: no program reads this key"),
        "list": ("- config\n", ""),
    }
    try:
        for name, (text, _) in broken.items():
            (clone.folder / f"Pulumi.{name}.yaml").write_text(text, encoding="latin-1")
        code, out, _ = clone.run("hyperpod list -o json")
        assert code == Exit.GOOD
        listed = {one["stack"]: one.get("problem", "") for one in json.loads(out)}
        assert all(listed[name] for name in broken)
        for name, (_, said) in broken.items():
            code, out, _ = clone.run(f"hyperpod cost {name} -o json")
            assert (code, json.loads(out)["exit_code"]) == (Exit.BAD_INPUT, Exit.BAD_INPUT)
            assert f"Pulumi.{name}.yaml" in json.loads(out)["error"]
            assert said in json.loads(out)["error"]
    finally:
        for name in broken:
            (clone.folder / f"Pulumi.{name}.yaml").unlink(missing_ok=True)


@each(
    {
        "a full standard output": ("hyperpod cost dev > /dev/full", Exit.FAILED, "No space left on device"),
        "JSON for a full disk": ("hyperpod cost dev --json > /dev/full", Exit.FAILED, "No space left on device"),
        "a closed standard output": ("hyperpod cost dev >&-", Exit.GOOD, ""),
        "every stream closed": ("hyperpod cost dev <&- >&- 2>&-", Exit.GOOD, ""),
        "ASCII alone": ("PYTHONIOENCODING=ascii hyperpod list", Exit.GOOD, ""),
        "a result for a full disk": ("hyperpod rehearse dev --write /dev/full", Exit.FAILED, "No space left on device"),
        "a report for no folder": ("hyperpod rehearse dev --report no/r.html", Exit.BAD_INPUT, "there is no folder no"),
        # No file may have even one byte.
        "no room for any file": ("ulimit -f 0; hyperpod init late", Exit.FAILED, "No usable temporary directory"),
    }
)
def test_no_stream_and_no_disk_makes_a_traceback(line: str, expected: Exit, said: str, clone: Clone) -> None:
    before = clone.stacks()
    code, _, err = clone.run(line)
    assert (code, said in err) == (expected, True)
    assert clone.stacks() == before

"""How a command line ends whatever its streams are, and where nobody foresaw the cause: never in a traceback."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from operations.cli import main
from operations.failures import Exit, Failure
from operations.terminal.command_line import wrapped
from operations.terminal.ending import run_to_its_end, unforeseen
from tests.operations.aws import ended, run
from tests.rows import each
from tests.support import ROOT


def test_a_defect_is_one_line_and_its_traceback_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of\nby zero")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("operations.commands.costs.bill", broken)
    assert main(["cost", "dev"]) == Exit.FAILED
    out, err = capsys.readouterr()
    (kept,) = tmp_path.iterdir()
    said = err.splitlines()
    assert (out, len(said)) == ("", 3)
    assert said[0].startswith("ZeroDivisionError: of by zero (test_ending.py, line ")
    assert said[1] == f"Next: report it with the traceback, which is in {kept}"
    assert "in broken" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_defect_on_a_full_disk_is_still_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert unforeseen(KeyError("x")).message == (
        "KeyError: 'x'; its traceback could not be kept: No such file or directory"
    )


def test_what_a_disk_refuses_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "bill.json")

    monkeypatch.setattr("operations.commands.costs.bill", full)
    code, _, err = run("cost", "dev")
    assert (code, err.splitlines()[0]) == (Exit.FAILED, "bill.json: No space left on device")


def test_a_full_output_at_the_end_fails_and_a_closed_pipe_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(io.StringIO):
        error: OSError

        def flush(self) -> None:
            raise self.error

    for error, code in ((OSError(28, "No space left on device"), Exit.FAILED), (BrokenPipeError(), Exit.GOOD)):
        stream = Broken()
        stream.error = error
        with monkeypatch.context() as patched:
            patched.setattr("sys.stdout", stream)
            assert run_to_its_end(lambda: 0, lambda _: None, str) == code
    assert capsys.readouterr().err == "standard output: No space left on device\n"


def test_a_failure_that_cannot_be_told_has_its_exit_code() -> None:
    def fail() -> int:
        raise Failure("no", code=Exit.BAD_INPUT)

    def untold(_: Failure) -> None:
        raise OSError(28, "No space left on device")

    assert run_to_its_end(fail, untold, str) == Exit.BAD_INPUT


@pytest.mark.slow
@each(("explain", "types --json"))
def test_who_reads_only_the_first_line_gets_no_failure(words: str) -> None:
    program = [sys.executable, "-m", "operations", *words.split()]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as verb:
        assert verb.stdout
        assert verb.stderr
        verb.stdout.close()
        said = verb.stderr.read()
    assert (verb.returncode, said) == (Exit.GOOD, "")


def test_characters_that_a_stream_lacks_are_written_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))

    def work() -> int:
        print("✓ ███ é")
        return 0

    assert run_to_its_end(work, lambda _: None, str) == Exit.GOOD
    assert written.getvalue() == b"+ ### ?\n"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_failure_has_the_form_that_was_asked_for(form: str) -> None:
    out, _ = ended(Exit.BAD_INPUT, "cost", "nope", "-o", form)
    assert "exit_code" in out


@each(
    {
        "an indented command": ("    printf 'a' > /usr/sbin/policy-rc.d && chmod +x b", None),
        "the next step": (
            "Next: hyperpod errors development    # every cause, newest first",
            ["Next: hyperpod errors development", "  # every cause, newest first"],
        ),
        "a command within a sentence": (
            "It says so, and the command `hyperpod explain HP012` says more of it",
            ["It says so, and the command", "  `hyperpod explain HP012` says more", "  of it"],
        ),
    }
)
def test_what_people_copy_is_not_broken_in_a_narrow_terminal(text: str, lines: list[str] | None) -> None:
    console = Console(width=36, force_terminal=True)
    assert wrapped(text, console) == (lines or [text])

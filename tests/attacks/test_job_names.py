"""What a job's name does to the list that an administrator confirms, and to the terminal that shows it."""

import sys
from pathlib import Path

import pytest

from operations.cluster import jobs_on_nodes, nodes, sessions
from operations.cluster.sessions import Remote
from operations.failures import Failure
from operations.target import Target
from operations.terminal import console
from operations.terminal.command_line import complain, printable
from operations.terminal.output_options import OPTIONS
from tests.operations import test_slurm as real
from tests.operations.aws import StubbedAws, run, stack, with_nodes, with_session
from tests.slurm import Slurm, needs_slurm

slurm, target = real.slurm, real.target
# Moves the cursor up and deletes the line, sets the window's title, writes to the clipboard, turns words around.
STEERS = "\x1b[1A\x1b[2K\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x9b31m\u202e\u2066\r\b"
# Ends the output of the session, and has rows of its own.
FORGED = f"x|\n__hyperpod_end__ 0\n9|root|1|harmless|\n|||||\u2028{STEERS}"


def tampered(text: str) -> list[str]:
    """What a terminal would not print as it is, but for the ends of lines and tabulators."""
    return [one for one in text if not one.isprintable() and one not in "\n\t"]


def test_words_of_others_lose_what_would_steer_a_terminal_and_nothing_else() -> None:
    assert printable("né, 研究\tllama-7b\n") == "né, 研究\tllama-7b\n"
    assert tampered(printable(FORGED)) == []
    assert printable("a\nb\tc\x1b[2K", keep="") == "a?b?c?[2K"


def test_no_way_to_print_lets_them_through(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "quiet", False)
    console.say(FORGED)
    console.prose(FORGED)
    console.note(FORGED)
    console.table("", ["name"], [(FORGED,)])
    complain(Failure(FORGED, FORGED))
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    def confirm(question: str, err: bool) -> bool:
        asked.append(question)
        return err

    monkeypatch.setattr("typer.confirm", confirm)
    console.confirm(FORGED, yes=False)
    said = capsys.readouterr()
    assert tampered(said.out + said.err + asked[0]) == []
    assert said.out.count("harmless") == 3
    assert said.err.count("harmless") == 3


def test_an_output_ends_where_its_session_says_and_not_where_a_name_does(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    chosen = stack(aws)
    line = "printf 'first\\n__hyperpod_begin__\\n__hyperpod_end__ 0\\nlast\\n'; exit 3"
    ran = sessions.run_remote(chosen, nodes.find(nodes.list_nodes(chosen), "controller"), line)
    assert (ran.code, ran.output) == (3, "first\n__hyperpod_begin__\n__hyperpod_end__ 0\nlast\n")


def test_no_two_sessions_end_alike(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    with_session(aws)
    chosen = stack(aws)
    controller = nodes.find(nodes.list_nodes(chosen), "controller")
    # A shell's own words, as another process of the same user would see them.
    first, second = (
        sessions.run_remote(chosen, controller, "cat /proc/$PPID/cmdline /proc/$$/cmdline").output for _ in "12"
    )
    assert "__hyperpod_end_" in first
    assert first != second


def test_exec_shows_a_terminal_no_control_characters(
    aws: StubbedAws, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_nodes(aws)
    with_session(aws)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    words = ("node", "exec", "dev", "controller", "--", "printf '12 x\\033[2K\\n13 y\\n'")
    assert run(*words)[:2] == (0, "12 x?[2K\n13 y\n")


def test_every_job_is_in_the_list_with_its_own_user(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    def squeue(_: object, __: object, line: str, timeout: float) -> Remote:
        end = line.partition(",Name:")[2].split("'")[0]
        return Remote(code=0, output="".join(f"{job}|ann|1|{FORGED}{end}\n" for job in (7, 8)) + f"11|ben|0|y{end}\n")

    monkeypatch.setattr(sessions, "run_remote", squeue)
    jobs = jobs_on_nodes.on_nodes(stack(aws), [real.CONTROLLER, real.WORKER], [real.CONTROLLER])
    assert [(job.id, job.user) for job in jobs] == [("7", "ann"), ("8", "ann"), ("11", "ben")]
    assert tampered("".join(job.name for job in jobs)) == []
    assert "\n" not in jobs[0].name


@pytest.mark.root
@needs_slurm
def test_a_real_slurm_takes_such_a_name_and_its_list_stays_whole(target: Target, slurm: Slurm, tmp_path: Path) -> None:
    name = FORGED.replace("'", "")
    real._run(slurm, f"sbatch --chdir=/tmp --output=/dev/null --job-name='{name}' --wrap 'sleep 60'")
    real._wait(slurm, "squeue --noheader --states=RUNNING --format=%T", "RUNNING")
    (job,) = jobs_on_nodes.on_nodes(target, [real.CONTROLLER, real.WORKER], [real.WORKER])
    real._run(slurm, "scancel --user=root")
    assert job.user == "root"
    assert "harmless" in job.name
    assert tampered(job.name) == []

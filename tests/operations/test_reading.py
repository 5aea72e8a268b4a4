"""What an error's words tell where no known failure matches."""

import re

import pytest
import typer

from components.common.documents import load
from operations import cli
from operations.failures import Exit, advice, reading
from tests.operations.aws import run, run_json
from tests.rows import each
from tests.support import ROOT

READINGS = load((ROOT / "tests/operations/readings.yaml").read_text())
ANSWERS = {
    f"{kind.name} {by}": answer for kind in reading.kinds() for by, answer in kind.answers.items()
}  # fmt: skip
NOUNS = {*load((reading.FOLDER / "nouns.yaml").read_text()), "stack"}


@each({row["text"]: row for row in READINGS})
def test_an_unknown_error_is_read_by_who_speaks_and_what_kind_it_is(row: dict[str, str]) -> None:
    found = reading.read(row["text"])
    assert found
    assert f"{found.speaker}/{found.kind}" == row["reads"], row["source"]
    assert row.get("noun", "") in "; ".join(f"{name} {noun}" for name, noun in found.nouns.items())


@each(ANSWERS)
def test_an_answer_names_verbs_and_nouns_that_there_are(answer: tuple[str, str]) -> None:
    verbs = typer.main.get_command(cli.app).commands.keys()  # type: ignore[attr-defined]
    why, step = answer
    assert why.endswith(".")
    assert set(re.findall(r"\bhyperpod ([a-z][\w-]+)", step)) <= verbs
    assert set(re.findall(r"(?<!\{)\{(\w+)\}", step)) <= NOUNS


def test_every_speaker_gets_an_answer_of_every_answers_name() -> None:
    names = {name for kind in reading.kinds() for name in kind.answers} - {"any"}
    assert names <= {one.family for one in reading.speakers()} | {one.name for one in reading.speakers()}
    assert all(reading.kinds()[-1].answer(one) for one in reading.speakers())


def test_an_unknown_error_is_explained_by_its_words_and_says_that_it_is_unknown() -> None:
    text = "NodeClaim.karpenter.sh failed: api error AccessDenied: cannot perform: iam:GetThing on resource: arn:aws:x"
    assert advice.matching("quux: no route to the thing at all") is None
    code, out, _ = run("explain", "slurm_update error: Invalid node state transition")
    assert code == Exit.GOOD
    assert out.startswith("No known failure matches. By its words: ")
    assert "Next: `scontrol show node NODE`" in out
    assert "Log: `journalctl -u slurmctld` on the controller" in out
    assert reading.read(text).nouns["action"] == "iam:GetThing"  # type: ignore[union-attr]
    _, found = run_json("explain", "GOROOT: unheard of, connection refused by 10.0.0.9")
    assert (found["known"], found["code"], found["reading"]["kind"]) == (False, "", "unreachable")


def test_a_known_failure_goes_before_what_the_words_tell() -> None:
    text = "NCCL WARN Bootstrap : no socket interface found"
    assert run("explain", text)[1].startswith("HP")
    assert run_json("explain", text)[1]["known"] is True


@pytest.mark.parametrize("text", ["Loss is 2.31 at step 100", "job 82 is running", "everything is well", "a b c"])
def test_what_is_no_error_is_not_read(text: str) -> None:
    assert reading.read(text) is None


def test_of_a_log_the_first_line_that_reports_an_error_is_read() -> None:
    log = "step 1 took 2 s\n" * 99 + "slurmd: error: thing is not writable: Permission denied\nsrun: error: timed out\n"
    found = reading.read(log)
    assert found
    assert (found.speaker, found.kind) == ("slurmd", "denied")


def test_one_word_that_is_an_errors_name_is_read_and_a_misspelt_key_is_not() -> None:
    assert run("explain", "UnknownSubnetFault")[1].startswith("No known failure matches")
    assert run("explain", "fsx.storageGB")[0] == Exit.BAD_INPUT

"""Tables in terminals of 40, 80 and 120 columns. tests/conftest.py looks at those of every verb."""

import pytest
from rich.text import Text

from operations.cluster.validate import Check, Validation
from operations.terminal.tables import Rows
from tests.operations.aws import StubbedAws, cluster, run
from tests.rows import each
from tests.widths import WIDTHS, drawn

NODES = Rows(
    ["node", "type", ("jobs", "right"), "address"],
    [("workers-1", "ml.g5.16xlarge", "3", "10.1.1.1"), ("workers-2", "ml.g5.16xlarge", "12", "")],
)


def test_a_column_without_room_has_a_line_below_each_row_unless_it_is_empty() -> None:
    assert drawn(NODES, 40) == [
        "node       jobs  address",
        "workers-1     3  10.1.1.1",
        "  type: ml.g5.16xlarge",
        "workers-2    12",
        "  type: ml.g5.16xlarge",
    ]
    assert drawn(NODES, 41)[1] == "workers-1  ml.g5.16xlarge     3  10.1.1.1"


def test_a_mark_stays_beside_what_it_is_about() -> None:
    table = Rows(["", "check", "found"], [(Text("FAIL", "red"), "a" * 30, "something else"), ("PASS", "b", "well")])
    assert drawn(table, 30) == [
        "      check",
        f"FAIL  {'a' * 30}",
        "  found: something else",
        "PASS  b",
        "  found: well",
    ]


def test_words_are_wrapped_down_to_a_width_that_is_read_with_ease() -> None:
    words = "one two three four five six seven"
    assert drawn(Rows(["key", "meaning"], [("key", words)]), 32)[1:] == [
        "key  one two three four five six",
        "     seven",
    ]
    assert drawn(Rows(["key", "meaning"], [("key", words)]), 28)[1:] == [
        "key",
        "  meaning: one two three",
        "    four five six seven",
    ]


def test_numbers_and_what_people_copy_are_whole() -> None:
    rows = [("x", "1,000.5", "as `hyperpod scale dev workers 3` says, or not")]
    table = Rows(["part", ("slurm-gpu $/hour", "right"), "then"], rows)
    assert drawn(table, 16) == [
        "       slurm-gpu",
        "part      $/hour",
        "x        1,000.5",
        "  then: as",
        "    `hyperpod scale dev workers 3`",
        "    says, or not",
    ]


def test_a_pipe_gets_every_column_on_one_line() -> None:
    table = Rows(["a", "b", "c"], [("x" * 70, "words " * 20, "y" * 50)], spare=("c",))
    (_, line) = drawn(table)
    assert line.split() == ["x" * 70, *["words"] * 20, "y" * 50]


@each(("explain", "explain workers", "cost eks-gpu", "cost slurm-gpu eks-gpu", "list", "assumptions"))
def test_no_line_of_a_verb_is_too_long_or_breaks_a_word(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {word.rstrip(":") for word in run(*line.split())[1].split()}
    with monkeypatch.context() as terminal:
        terminal.setattr("sys.stdout.isatty", lambda: True, raising=False)
        for width in WIDTHS:
            terminal.setenv("COLUMNS", str(width))
            lines = [Text.from_ansi(one).plain.rstrip() for one in run(*line.split())[1].splitlines()]
            assert [one for one in lines if len(one) > width and len(one.split()) > 1] == []
            assert [one for one in lines if {word.rstrip(":") for word in one.split()} - whole] == []


def test_what_to_do_after_a_failed_check_is_on_a_line_of_its_own(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "hyperpod node exec dev workers-1 -- sudo /opt/hyperpod/bin/hyperpod-validate"
    found = [Check(name="workers-1: shared file system", result="FAIL", detail="/fsx is read-only", hint=hint)]
    monkeypatch.setattr(Validation, "run", lambda _: found)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    aws.answer("sagemaker", "describe_cluster", cluster())
    lines = [Text.from_ansi(one).plain.rstrip() for one in run("validate", "dev")[1].splitlines()]
    assert lines == [
        "hyperpod-dev",
        "      check",
        "FAIL  workers-1: shared file system",
        "  found: /fsx is read-only",
        "  FAIL workers-1: shared file system:",
        f"    {hint}",
        "1 FAIL",
    ]

"""What pages show for somebody without an AWS account runs as it is shown."""

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.project import stack_names
from tests.operations.aws import run
from tests.operations.test_docs import PAGES, commands
from tests.support import ROOT, few_files

pytestmark = pytest.mark.slow
# Verbs that ask nothing of AWS; `cost --live` and `policy` without an account do.
_ALONE = {"cost", "explain", "list", "policy", "rehearse"}
# Rehearsals of their own, with tests of their own. What is served goes on until Ctrl-C.
_ELSEWHERE = {"drill", "eks", "nodes"}
_NOT_HERE = {"--live", "--serve"}


def shown() -> Iterator[str]:
    """The commands of all pages that need no account, whole and for a stack that is here, each once."""
    known, seen = set(stack_names(ROOT)), set[tuple[str, ...]]()
    for page in PAGES:
        for line in commands((ROOT / page).read_text()):
            words = shlex.split(line.split("   ")[0].strip().rstrip(".,;:)"))
            if len(words) < 2 or words[0] not in _ALONE or words[1] in _ELSEWHERE or _NOT_HERE & {*words}:
                continue
            if words[0] == "policy" and "--account" not in words:
                continue
            if words[0] not in ("explain", "list") and not known & {*words}:
                continue
            if words[0] == "explain" and re.fullmatch("[A-Z]+", words[1]):
                continue
            if tuple(words) not in seen:
                seen.add(tuple(words))
                yield shlex.join(words)


COMMANDS = list(shown())


def test_the_pages_show_such_commands() -> None:
    assert {line.split()[0] for line in COMMANDS} >= {"cost", "explain", "policy", "rehearse"}
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_without_an_account_runs_as_it_is_shown(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    monkeypatch.setattr("sys.stdin", io.StringIO("Node failure on ip-10-1-2-3"))
    with few_files():
        code, out, err = run(*words)
    # A page that shows a failure asks for one. A cluster goes into service without the workers that AWS lacks.
    asked = {"--fail", "--quota"} & {*words} and "hyperpod-cluster=capacity" not in words
    assert code == (1 if asked else 0), out + err
    for option in ("--json", "--report"):
        if option in words[:-1] and not words[words.index(option) + 1].startswith("-"):
            assert (tmp_path / words[words.index(option) + 1]).stat().st_size

"""One grammar for all verbs: the stack first, then what it is about; and each option means the same everywhere."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from operations import cli
from operations.failures import Exit
from operations.project import stack_names
from operations.terminal import command_line
from tests.operations.aws import run
from tests.support import ROOT, few_files

# Verbs whose result is for people alone, a shell or a log.
WITHOUT_JSON = {"node connect", "job logs", "job cancel"}
# Verbs that work on no stack, or on none in particular.
WITHOUT_STACK = {"init", "list", "explain", "types", "download charts", "download containers"}


def verbs(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb by its whole name."""
    command = command or command_line.command(cli.app)
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
    for word, one in (below or {}).items():
        yield from verbs(one, f"{name} {word}".strip())


VERBS = dict(verbs())


def options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option"]


def arguments(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument"]


def test_the_stack_comes_first_and_every_example_says_so() -> None:
    without = set()
    for name, command in VERBS.items():
        named = [one.name for one in arguments(command)]
        if "stack" not in named:
            without.add(name)
            continue
        assert named[0] == "stack", name
        for line in command.help.splitlines():
            words = line.split()
            if words[:1] == ["hyperpod"] and words[1:] and not name.startswith("rehearse deployment"):
                after = words[1 + len(name.split()) :]
                assert not after or after[0] in {*stack_names(ROOT), "STACK"} or after[0].startswith("-"), line
    assert without == WITHOUT_STACK


def test_a_short_option_is_one_word_everywhere_and_a_word_has_one_short_option() -> None:
    long_of, short_of = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for command in VERBS.values():
        for one in options(command):
            long, short = [[word for word in one.opts if word.startswith("--") == double] for double in (True, False)]
            assert len(long) == 1
            short_of[long[0]].update(short or ["none"])
            for word in short:
                long_of[word].add(long[0])
    assert {short: words for short, words in long_of.items() if len(words) > 1} == {}
    assert {long: words for long, words in short_of.items() if len(words) > 1} == {}
    assert (long_of["-n"], long_of["-N"], long_of["-w"]) == ({"--namespace"}, {"--nodes"}, {"--write"})


def test_json_is_a_flag_of_every_verb_that_has_a_result() -> None:
    without = set()
    for name, command in VERBS.items():
        found = [one for one in options(command) if "--json" in one.opts]
        assert all(one.is_flag for one in found)
        if not found:
            without.add(name)
    assert without == WITHOUT_JSON


def test_an_option_takes_the_same_wherever_it_is() -> None:
    taken = defaultdict[str, set[tuple[bool, str]]](set)
    for command in VERBS.values():
        for one in options(command):
            taken[one.opts[0]].add((one.is_flag, (one.metavar or "").replace("FOLDER", "FILE")))
    # Of a list of types it asks for any EFA at all, of a job for so many interfaces.
    assert {name for name, kinds in taken.items() if len(kinds) > 1} == {"--efa"}


def test_every_verb_is_listed_and_the_list_is_short() -> None:
    found = command_line.command(cli.app).commands
    assert [name for name, one in found.items() if one.hidden] == []
    assert len(found) <= 28


@pytest.mark.slow
def test_a_rehearsal_is_quiet_and_has_the_form_that_is_asked_for() -> None:
    with few_files():
        code, out, err = run("rehearse", "dev", "-q", "-o", "yaml")
    found = yaml.safe_load(out)
    assert (code, found["stack"], found["passed"], "Rehearsing" in err) == (Exit.GOOD, "dev", True, False)
    with pytest.raises(json.JSONDecodeError):
        json.loads(out)

"""The words of a command line: the stack comes first, wherever it was named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

VARIABLE = "HYPERPOD_STACK"


def verb_of(words: Sequence[str], command: Any) -> tuple[list[str], Any]:
    """The words that name a verb, one within another, and the verb."""
    verb: list[str] = []
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        verb.append(word)
        command = command.commands[word]
    return verb, command


def stack_first(words: Sequence[str], command: Any, known: Sequence[str]) -> list[str]:
    """The words with the stack after the verb, for a verb that takes one.

    ``--stack NAME`` and ``-s NAME`` may name it anywhere; without a name that is ``known``, the environment variable
    HYPERPOD_STACK does. What follows ``--`` is another command's.
    """
    verb, command = verb_of(words, command)
    rest = list(words[len(verb) :])
    argument = next((one for one in command.params if one.name == "stack"), None)
    if argument is None:
        return [*verb, *rest]
    end = rest.index("--") if "--" in rest else len(rest)
    own, others = rest[:end], rest[end:]
    if (named := _taken(own)) is None and not {*known} & {*own}:
        # Without a stack `assumptions` means something else.
        named = os.environ.get(VARIABLE) if argument.required or argument.default else None
        if {"-h", "--help"} & {*own}:
            named = None
    return [*verb, *([named] if named else []), *own, *others]


def _taken(words: list[str]) -> str | None:
    """The value of --stack, which is taken out of the words."""
    for number, word in enumerate(words):
        if word.startswith("--stack="):
            del words[number]
            return word.partition("=")[2]
        if word in ("--stack", "-s") and number + 1 < len(words):
            named = words[number + 1]
            del words[number : number + 2]
            return named
    return None

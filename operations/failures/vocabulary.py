"""The codes in an error's text that the program behind it defines itself, with what they mean.

unknown/codes/ has tables of them. AWS's own references come with botocore; Linux's errors and signals and the statuses
of HTTP come with Python.
"""

import errno
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path

from components.common.documents import load

from . import aws_reference

FOLDER = Path(__file__).parent / "unknown" / "codes"


@dataclass(frozen=True, kw_only=True)
class Term:
    """A code that a program defines: what it means and, where the table has it, the next step.

    ``follows``: it only passes on what happened elsewhere, as an exit code does.
    """

    name: str
    program: str
    means: str
    step: str = ""
    follows: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """The codes of a program, and sentences by which it reports an error, each with its meaning and next step.

    Both are regular expressions, of a whole code and of a part of the text. Only a text in which ``where`` is found has
    such a code: short names mean different things to different programs. A named group of a code replaces its name in
    braces. ``follows``: any other code in the text comes first.
    """

    program: str
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)
    sentences: dict[str, tuple[str, str]] = field(default_factory=dict)
    where: str = ""
    follows: bool = False

    def term(self, name: str) -> Term | None:
        """This program's term of this name."""
        for code, (means, step) in self.codes.items():
            if found := _compiled(code).fullmatch(name):
                for key, value in found.groupdict(default="").items():
                    means = means.replace(f"{{{key}}}", _spaced(value))
                return Term(name=name, program=self.program, means=means, step=step, follows=self.follows)
        return None

    def sentence(self, text: str) -> Term | None:
        """The term of the first sentence of this program that the text has."""
        for sentence, (means, step) in self.sentences.items():
            if found := _compiled(sentence, re.IGNORECASE).search(text):
                return Term(name=found.group()[:80], program=self.program, means=means, step=step)
        return None


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def _spaced(name: str) -> str:
    """VpcEndpoint as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)


@cache
def tables() -> tuple[Table, ...]:
    """Every table of unknown/codes/."""
    return tuple(Table(**load(path.read_text())) for path in sorted(FOLDER.glob("*.yaml")))


def find(text: str) -> Term | None:
    """The first sentence or code in a text that its program defines; None if there is none."""
    if said := next((term for one in tables() if (term := one.sentence(text))), None):
        return said
    names = list(dict.fromkeys(_names(text)))
    fit = [one for one in tables() if not one.where or _compiled(one.where, re.IGNORECASE).search(text)]
    searches: list[Callable[[str], Term | None]] = [
        *(one.term for one in fit if not one.follows),
        lambda name: _of_aws(name, text),
        *(one.term for one in fit if one.follows),
        _of_python,
    ]
    return next((term for search in searches for name in names if (term := search(name))), None)


def _of_aws(name: str, text: str) -> Term | None:
    found = aws_reference.find(name, text)
    return Term(name=found.code, program=found.service, means=found.means, step=found.step) if found else None


def _names(text: str) -> Iterator[str]:
    """What can be a code in a text: its words, and the numbers that stand for a name."""
    for word in re.findall(r"[A-Za-z]\w*(?:\.[A-Z]\w*)*", text):
        yield word
        if "." in word:
            yield word.rpartition(".")[2]
    for pattern, name in _NUMBERS:
        for found in re.findall(pattern, text):
            try:
                yield name(int(found))
            except (KeyError, ValueError):
                continue


_NUMBERS: tuple[tuple[str, Callable[[int], str]], ...] = (
    (r"(?i)\[Errno (\d+)\]", errno.errorcode.__getitem__),
    (r"(?i)\(?os error (\d+)\b", errno.errorcode.__getitem__),
    (r"(?i)\berrno\W{1,3}(\d+)\b", errno.errorcode.__getitem__),
    # The kernel and Lustre return Linux's errors as negative numbers.
    (r"(?i)\b(?:rc|ret|retval|err|error|errno|status)\W{1,4}-(\d{1,3})\b", errno.errorcode.__getitem__),
    (r"(?i)\bexit(?:ed with)? ?(?:code|status)\W{1,3}(1[2-6]\d)\b", lambda number: signal.Signals(number - 128).name),
    (r"(?i)\bexit ?(?:code|status)\W{1,4}-(\d{1,2})\b", lambda number: signal.Signals(number).name),
    (r"(?i)\bsignal\W{1,2}(\d{1,2})\b", lambda number: signal.Signals(number).name),
    (r"(?i)\bHTTP(?:/[\d.]+)?(?: \w+){0,2} ?(?:code|status)?\W{1,2}([1-5]\d\d)\b", "HTTP {}".format),
    (r"(?i)\bstatus ?_?code\W{1,3}([1-5]\d\d)\b", "HTTP {}".format),
)


def _of_python(name: str) -> Term | None:
    """A code of Linux or HTTP, in the words that Python has for it."""
    if number := getattr(errno, name, 0) if re.fullmatch(r"E[A-Z0-9]{2,}", name) else 0:
        return Term(name=name, program="Linux", means=f"Linux's error {number}: {os.strerror(number)}.", follows=True)
    if re.fullmatch(r"SIG[A-Z]+\d?", name) and name in signal.Signals.__members__:
        number = signal.Signals[name]
        means = (
            f"Signal {number} ended the program, {signal.strsignal(number)}: exit code {128 + number}, or -{number}."
        )
        return Term(name=name, program="Linux", means=means, follows=True)
    if found := re.fullmatch(r"HTTP ([45]\d\d)", name):
        status = next((one for one in HTTPStatus if one == int(found.group(1))), None)
        if status and status.description:
            return Term(name=name, program="HTTP", means=f"{status.phrase}: {status.description}.", follows=True)
    return None

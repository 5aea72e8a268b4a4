"""What to do about a failure, chosen by its text."""

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from components.common.documents import load

from . import reading, vocabulary

PAGE = "docs/troubleshooting.md"
# known/ has a file for each, and looks for a failure in this order: what only one program says comes before what
# many say, so AWS's general codes come after the others.
ORIGINS = ("project", "pulumi", "kubernetes", "frameworks", "training", "slurm", "aws")
FOLDER = Path(__file__).parent / "known"
# What to do after a rehearsal, of which `hyperpod errors` knows nothing.
REHEARSE_AGAIN = "fix what the message names, then rehearse again"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What helps where a message matches ``pattern``. ``seen`` is such a message, ``why`` what is behind it.

    ``code`` is its name for ever, as in HP010; ``title`` has the words that people search for. Without a pattern, code
    that raises the failure names it. ``follows``: the words are also those of consequences, so whatever else a text
    reports counts before them. ``general``: many codes and sentences are such a failure, each with its own meaning.
    """

    name: str
    code: str
    title: str
    pattern: str = ""
    seen: str
    why: str
    step: str
    follows: bool = False
    general: bool = False

    def reports(self, text: str) -> bool:
        """Whether this failure has such a text."""
        return _compiled(self.pattern).search(text) is not None

    @property
    def page(self) -> str:
        """The page about it, with the section."""
        return f"{PAGE}#{self.code.lower()}"

    @property
    def more(self) -> str:
        """Where to read on. Every message of a failure ends with it."""
        return f"More: hyperpod explain {self.code}, or {self.page}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern for every case of letters. There are more of them than the module ``re`` remembers."""
    return re.compile(pattern, re.IGNORECASE)


@cache
def of(origin: str) -> tuple[Advice, ...]:
    """The failures that one of ``ORIGINS`` reports."""
    return tuple(Advice(**row) for row in load((FOLDER / f"{origin}.yaml").read_text()))


@cache
def known() -> tuple[Advice, ...]:
    """Every failure that the project knows, in the order in which they are looked for."""
    return tuple(sorted((one for origin in ORIGINS for one in of(origin)), key=lambda one: one.follows))


def named(name: str) -> Advice:
    """The failure of this name. Raises StopIteration for an unknown one."""
    return next(one for one in known() if one.name == name)


def matching(text: str) -> Advice | None:
    """The first failure that this text reports. Upper and lower case are the same; a pattern looks at one line.

    A message, which is shorter than a log, is also looked at without the lines that a terminal has broken it into.
    """
    forms = [text, " ".join(text.split())] if len(text) <= reading.MESSAGE else [text]
    return next((one for one in known() if one.pattern and any(one.reports(form) for form in forms)), None)


def answering(text: str) -> Advice | None:
    """The failure that this text reports; a general one with the meaning and step of the text's own code."""
    found = matching(text)
    term = vocabulary.find(text) if found and found.general and len(text) <= reading.MESSAGE else None
    if not found or not term or term.follows:
        return found
    return replace(found, title=f"{term.name} ({term.program})", seen="", why=term.means, step=term.step or found.step)


def closest(text: str) -> list[Advice]:
    """The known failures, three at most, whose words are the most like a text's; none of them need be its cause.

    The likeness is the cosine of both lists of words, in which a word weighs the more the fewer failures have it.
    """
    documents = {one.name: _words(f"{one.title} {one.seen} {one.pattern}") for one in known()}
    frequency = Counter(word for words in documents.values() for word in words)
    weight = {word: math.log(len(documents) / count) ** 2 for word, count in frequency.items()}
    asked = _words(text) & weight.keys()
    near = {}
    for name, words in documents.items():
        both = sum(weight[word] for word in words & asked)
        near[name] = both / math.sqrt(sum(map(weight.__getitem__, words)) * sum(map(weight.__getitem__, asked)) or 1)
    best = sorted(near, key=lambda name: -near[name])[:3]
    return [named(name) for name in best if near[name] >= _NEAR]


_NEAR = 0.15


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def about(text: str) -> Advice:
    """The same, or what holds for every failure."""
    return answering(text) or named("failed")


def next_step(text: str, stack: str, otherwise: str | None = None) -> str:
    """What to do about a failure with this text. Where no pattern matches: ``otherwise``, or what its words tell."""
    if found := answering(text):
        return found.step.format(stack=stack)
    read = reading.read(text, stack) if otherwise is None else None
    return read.step if read else named("failed").step.format(stack=stack) if otherwise is None else otherwise

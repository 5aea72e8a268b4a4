"""What to do about a failure, chosen by its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from components.documents import load

PAGE = "docs/troubleshooting.md"
# What to do after a rehearsal, of which `hyperpod errors` knows nothing.
REHEARSE_AGAIN = "mend what the message names, then rehearse again"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What helps where a message matches ``pattern``. ``seen`` is such a message, ``why`` what is behind it.

    ``code`` is its name for ever, as in HP010. Without a pattern, code that raises the failure names it.
    """

    name: str
    code: str
    pattern: str = ""
    seen: str
    why: str
    step: str

    @property
    def more(self) -> str:
        """Where to read on. Every message of a failure ends with it."""
        return f"More: hyperpod explain {self.code}, or {PAGE}#{self.code.lower()}"


@cache
def known() -> tuple[Advice, ...]:
    """Every failure that the project knows, in the order in which they are looked for."""
    rows = load(Path(__file__).with_suffix(".yaml").read_text())
    return tuple(Advice(**row) for row in rows)


def named(name: str) -> Advice:
    """The failure of this name. Raises StopIteration for an unknown one."""
    return next(one for one in known() if one.name == name)


def matching(text: str) -> Advice | None:
    """What is known of a failure with this text."""
    return next((one for one in known() if one.pattern and re.search(one.pattern, text)), None)


def about(text: str) -> Advice:
    """The same, or what holds for every failure."""
    return matching(text) or named("failed")


def next_step(text: str, stack: str, otherwise: str | None = None) -> str:
    """What to do about a failure with this text; ``otherwise`` if no pattern matches."""
    found = matching(text)
    step = found.step if found else named("failed").step if otherwise is None else otherwise
    return step.format(stack=stack)

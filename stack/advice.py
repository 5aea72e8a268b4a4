"""What to do about a failure, chosen by its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

_OTHERWISE = "hyperpod errors {stack}    # every cause, newest first; deploying again continues where it stopped"
# The same of a rehearsal, of which `hyperpod errors` knows nothing.
REHEARSE_AGAIN = "mend what the message names, then rehearse again"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What helps where a message matches ``pattern``. ``seen`` is such a message, ``why`` what is behind it."""

    name: str
    pattern: str
    seen: str
    why: str
    step: str


@cache
def known() -> tuple[Advice, ...]:
    """Every failure that the project knows, in the order in which they are looked for."""
    rows = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tuple(Advice(**row) for row in rows)


def next_step(text: str, stack: str, otherwise: str = _OTHERWISE) -> str:
    """What to do about a failure with this text; ``otherwise`` if no pattern matches."""
    step = next((one.step for one in known() if re.search(one.pattern, text)), otherwise)
    return step.format(stack=stack)

"""What an error's words tell where no known failure matches: who reports it, what kind of error it is, what to do.

The tables in unknown/ have speakers, kinds and nouns. A reading claims no cause: several are possible for a kind.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from components.common.documents import load

from . import vocabulary

# Characters of a message. More is a log, in which lines belong to different events.
MESSAGE = 1000
FOLDER = Path(__file__).parent / "unknown"


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """A program or service by what it writes. ``family`` is that of its answers, ``log`` where its own lines are."""

    name: str
    who: str
    family: str
    pattern: str
    log: str


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of error, with its meaning and next step by a speaker's name, by a family, or for ``any``."""

    name: str
    what: str
    pattern: str
    answers: Mapping[str, tuple[str, str]]

    def answer(self, speaker: Speaker | None) -> tuple[str, str] | None:
        """What this kind means if this speaker reports it; None if it reports no such thing."""
        names = (speaker.name, speaker.family, "any") if speaker else ("any",)
        return next((self.answers[name] for name in names if name in self.answers), None)

    def is_own(self, speaker: Speaker | None) -> bool:
        """Whether the answer is this speaker's own, and says more than what every program has to say of its codes."""
        own = speaker is not None and speaker.family not in ("linux", "network") and self is not kinds()[-1]
        return own and self.answer(speaker) is not self.answers.get("any")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the words tell. ``nouns`` are what they name, such as an action, a path or a host.

    ``code`` is one that its program defines; its meaning then counts before the kind's.
    """

    kind: str
    what: str
    speaker: str
    who: str
    nouns: Mapping[str, str]
    why: str
    step: str
    log: str
    code: str = ""

    @property
    def title(self) -> str:
        """Who reports what kind of error, by its code where there is one."""
        what = f"{self.code} ({self.what})" if self.code else self.what
        return f"{what}, reported by {self.who}" if self.who else what


@cache
def _table(name: str) -> Any:
    return load((FOLDER / f"{name}.yaml").read_text())


@cache
def speakers() -> tuple[Speaker, ...]:
    """Everybody who is recognized; whoever is nearest to the cause comes first."""
    return tuple(Speaker(**row) for row in _table("speakers"))


@cache
def kinds() -> tuple[Kind, ...]:
    """Every kind, in the order in which they are looked for. The last one has every text of a known speaker."""
    return tuple(Kind(**row) for row in _table("kinds"))


def read(text: str, stack: str = "STACK") -> Reading | None:
    """What a text's words tell; None if no speaker, kind or code is recognized."""
    line = _message(text)
    term = vocabulary.find(line)
    speaker = next((one for one in speakers() if re.search(one.pattern, line, re.IGNORECASE)), None)
    fit = (one for one in kinds() if one.answer(speaker) and re.search(one.pattern, line, re.IGNORECASE))
    kind = next(fit, None)
    if kind is None and term is None:
        return None
    found = _nouns(line)
    why, step = (kind.answer(speaker) if kind else None) or ("", "")
    what, who, log = (kind.what if kind else ""), (speaker.who if speaker else ""), (speaker.log if speaker else "")
    if term and not (term.follows and kind and kind.is_own(speaker)):
        what, why, step = term.program, term.means, term.step or step
        if not term.follows:
            who = log = ""
    words = defaultdict(str, {name: name.upper() for name in _table("nouns")} | found | {"stack": stack})
    return Reading(
        kind=kind.name if kind else "code",
        what=what,
        speaker=speaker.name if speaker else "",
        who=who,
        nouns=found,
        why=why,
        step=step.format_map(words),
        log=log.format_map(words),
        code=term.name if term else "",
    )


def _message(text: str) -> str:
    """A text as one line; of a log, the first line that reports an error."""
    if len(text) <= MESSAGE:
        return " ".join(text.split())
    return next(filter(_REPORTS.search, text.splitlines()), "")


_REPORTS = re.compile(r"(?i)error|fatal|fail|denied|exception|panic|refused|timed out")


def _nouns(line: str) -> dict[str, str]:
    """What the text names, by the kind of thing."""
    named = {}
    for name, patterns in _table("nouns").items():
        hits = (re.search(pattern, line) for pattern in patterns)
        if hit := next(filter(None, hits), None):
            named[name] = hit.group(1)
    return named

"""A drill, its findings, and when it passes."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from components.catalogue.rows import table
from components.config import Config
from operations.failures.advice import Advice, matching

from ..checks import CheckFailed

Site = TypeVar("Site")
Where = Literal["account", "nodes", "kubernetes"]


@dataclass
class Finding:
    """The result of a fault. ``seen``: what the user was told. ``lost``: data and work that did not survive. ``left``:
    what had to be removed by hand. ``seconds``: from the fault to everything working again; of AWS's time in the
    account, else of real time.
    """

    seen: str
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Result:
    """A drill that was run. ``known``: what is known of what was seen. ``why`` it has failed; empty if it passed."""

    name: str
    stack: str
    seen: str = ""
    known: Advice | None = None
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether the user was told the cause, and nothing was lost or left."""
        return not (self.why or self.lost or self.left)

    @property
    def told(self) -> list[str]:
        """What the user was told besides the cause: the next step, and where to read on."""
        return [f"Next: {self.known.step.format(stack=self.stack)}", self.known.more] if self.known else []

    def as_json(self) -> dict[str, Any]:
        """The documented form. ``seen`` has the cause, then the next step and where to read on."""
        return {
            "name": self.name,
            "passed": self.passed,
            "seen": "\n".join([self.seen, *self.told]),
            "code": self.known.code if self.known else "",
            "lost": self.lost,
            "left": self.left,
            "seconds": round(self.seconds, 1),
            "why": self.why,
        }


@dataclass(frozen=True)
class Drill(Generic[Site]):
    """``tells``: a pattern of the cause, as the user has to see it. ``act`` breaks and recovers a site; it raises
    CheckFailed where the site does not recover. ``unfit``: why a stack has nothing that it could break, if so.
    """

    name: str
    breaks: str
    where: Where
    tells: str
    act: Callable[[Site], Finding]
    unfit: Callable[[Config], str] = lambda config: ""

    def run(self, site: Site, stack: str) -> Result:
        """Break the site, and judge what is found."""
        began = time.monotonic()
        try:
            found = self.act(site)
        except CheckFailed as failed:
            return Result(self.name, stack, seconds=time.monotonic() - began, why=f"it did not recover: {failed}")
        told = re.search(self.tells, found.seen)
        return Result(
            self.name,
            stack,
            found.seen,
            matching(found.seen),
            found.lost,
            found.left,
            found.seconds,
            "" if told else "the user was not told the cause",
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: a drill's name, what it breaks, and a pattern of the cause that users must see."""

    name: str
    breaks: str
    tells: str


@cache
def _rows() -> Mapping[str, Row]:
    return table(Path(__file__).with_name("drills.csv"), Row, "name")


def drills(
    where: Where,
    acts: Mapping[str, Callable[[Site], Finding]],
    unfit: Mapping[str, Callable[[Config], str]] = MappingProxyType({}),
) -> tuple[Drill[Site], ...]:
    """The table's drills of these names, by what each does, and which stacks have nothing that it could break."""
    rows = ((_rows()[name], act) for name, act in acts.items())
    return tuple(
        Drill(row.name, row.breaks, where, row.tells, act, unfit.get(row.name, lambda config: "")) for row, act in rows
    )

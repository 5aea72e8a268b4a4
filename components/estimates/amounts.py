"""A stack's cost, as far as it is known: for each part the price, a bound, an estimate, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..catalogue.prices import HOURS_PER_MONTH

# How many parts without a price a sentence names.
_NAMED = 2


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a stack, US dollars an hour: it costs ``least`` to ``most``.

    The two are equal if the price is known. ``most`` is None if no published price bounds it; ``guess`` is then an
    estimate by ``basis``, or None. ``what`` is the part's name in a sentence.
    """

    what: str
    least: float
    most: float | None
    guess: float | None
    basis: str = ""

    @property
    def known(self) -> bool:
        """Whether the price is known."""
        return self.least == self.most

    def times(self, factor: float) -> Part:
        """Return the cost of so many hours."""
        return replace(
            self, least=self.least * factor, most=_times(self.most, factor), guess=_times(self.guess, factor)
        )

    def figure(self, places: int = 2) -> str:
        """Return the figure for a table: "<=" before a maximum, "~" before an estimate."""
        if self.most is not None:
            return f"{'' if self.known else '<='}{self.most:,.{places}f}"
        return "unknown" if self.guess is None else f"~{self.guess:,.{places}f}"


def _times(usd: float | None, factor: float) -> float | None:
    return None if usd is None else usd * factor


def known(what: str, usd: float) -> Part:
    """Return a part with its price."""
    return Part(what=what, least=usd, most=usd, guess=usd)


def total(what: str, parts: Iterable[Part]) -> Part:
    """Add parts."""
    every = tuple(parts)
    bases = dict.fromkeys(part.basis for part in every if part.most is None and part.basis)
    return Part(
        what=what,
        least=sum(part.least for part in every),
        most=_sum(part.most for part in every),
        guess=_sum(part.guess for part in every),
        basis=" and ".join(bases),
    )


def dearest(parts: Sequence[Part]) -> Part:
    """Return what one of several costs, whichever it is: from the cheapest to the dearest."""
    if len(parts) == 1:
        return parts[0]
    every = total("", parts)
    return replace(
        every,
        least=min(part.least for part in parts),
        most=None if every.most is None else max(part.most or 0.0 for part in parts),
        guess=None if every.guess is None else max(part.guess or 0.0 for part in parts),
    )


def _sum(amounts: Iterable[float | None]) -> float | None:
    found = tuple(amounts)
    given = [usd for usd in found if usd is not None]
    return sum(given) if len(given) == len(found) else None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A stack's cost, by part. ``notes`` name what the figures leave out.

    ``accelerated`` are the parts with accelerators; ``listed`` those that use the tables' prices, wholly or in part.
    ``warnings`` name unknown prices; ``place`` is a region for which the tables have no prices. ``idle``: what the
    stack costs without the nodes that follow demand, in words; empty if none do. ``ranges``: the types that come decide
    what it costs, from ``whole.least`` to ``whole.most``.
    """

    parts: Mapping[str, Part]
    accelerated: tuple[str, ...]
    notes: tuple[str, ...]
    listed: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    place: str = ""
    idle: str = ""
    ranges: bool = False

    @cached_property
    def whole(self) -> Part:
        """All parts together."""
        return total("", self.parts.values())

    @property
    def hourly_usd(self) -> float | None:
        """The maximum cost of the whole stack, USD an hour; None if the price of a part is unknown."""
        return self.whole.most

    @property
    def monthly_usd(self) -> float | None:
        """The same for 730 hours."""
        return None if self.whole.most is None else self.whole.most * HOURS_PER_MONTH

    @property
    def accelerator_hourly_usd(self) -> float | None:
        """The share of the accelerators, USD an hour; None if it is unknown."""
        return total("", (self.parts[name] for name in self.accelerated)).most

    @property
    def words(self) -> str:
        """Return an hour's cost in words that claim no more than is known, idle and at most."""
        return f"{self.idle} idle, {self._most}" if self.idle else self._most

    @property
    def _most(self) -> str:
        whole = self.whole
        if whole.most is not None and self.ranges and not (self.idle or whole.known):
            return f"${whole.least:,.2f} to ${whole.most:,.2f} an hour"
        if whole.most is not None:
            return f"{'' if whole.known else 'at most '}${whole.most:,.2f} an hour"
        said = [f"at least ${whole.least:,.2f} an hour"] if whole.least else []
        said.append(f"price of {self.unknown} unknown")
        if whole.guess is not None:
            said.append(f"about ${whole.guess:,.2f} an hour as an estimate, by {whole.basis}")
        return "; ".join(said)

    @property
    def headline(self) -> str:
        """Return an hour's and a month's cost, and the share of the accelerators, as far as they are known."""
        hourly, monthly, accelerators = self.hourly_usd, self.monthly_usd, self.accelerator_hourly_usd
        if not hourly or monthly is None or accelerators is None:
            return self.words
        most = "" if self.whole.known else "at most "
        return f"{self.words}, {most}${monthly:,.0f} a month, {accelerators / hourly:.0%} of it accelerators"

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Return the parts for a table, the largest first: name, an hour, a month."""
        return [
            (name, part.figure(3), part.times(HOURS_PER_MONTH).figure(0))
            for name, part in sorted(self.parts.items(), key=lambda row: -(row[1].most or row[1].guess or 0.0))
        ]

    @property
    def unknown(self) -> str:
        """The parts without a known price."""
        found = list(dict.fromkeys(part.what for part in self.parts.values() if part.most is None))
        if self.place:
            return f"{len(found)} parts in {self.place}"
        more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED + 1 else []
        return ", ".join([*(found[:_NAMED] if more else found), *more])

    def within(self, limit: float) -> bool | None:
        """Whether the stack costs at most ``limit`` USD an hour; None if nobody can know."""
        most = self.whole.most
        if most is not None and most <= limit:
            return True
        return False if self.whole.known or self.whole.least > limit else None

    def as_json(self) -> dict[str, Any]:
        """Return the documented form: null for an unknown price, which a warning then names."""
        estimated = {name: part for name, part in self.parts.items() if part.most is None and part.guess is not None}
        return {
            "hourly_usd": self.hourly_usd,
            "monthly_usd": self.monthly_usd,
            "accelerator_hourly_usd": self.accelerator_hourly_usd,
            "words": self.words,
            "at_least_usd": self.whole.least,
            "estimated_hourly_usd": self.whole.guess,
            "parts": {name: part.most for name, part in self.parts.items()},
            "at_most": [name for name, part in self.parts.items() if part.most is not None and not part.known],
            "estimates": {name: {"hourly_usd": part.guess, "basis": part.basis} for name, part in estimated.items()},
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def difference(before: Cost, after: Cost) -> float | None:
    """Return how much more ``after`` costs, USD an hour; None if a differing part has an unknown price."""
    more = 0.0
    nothing = known("", 0.0)
    for name in {**before.parts, **after.parts}:
        one, two = before.parts.get(name, nothing), after.parts.get(name, nothing)
        if one != two and not (one.known and two.known):
            return None
        more += two.least - one.least
    return more

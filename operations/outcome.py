"""What applying a part of the configuration changes."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Changes, made or, in a dry run, to be made. ``locked`` are the people who lose access by them."""

    changes: Sequence[str] = ()
    notes: Sequence[str] = ()
    locked: Sequence[str] = ()

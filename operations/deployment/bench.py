"""What ``--rehearse`` needs from the rehearsal, a separate product on top of this one that supplies it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ..failures import cannot_know
from ..target import Target
from .engines import Engine


class Account(Protocol):
    """An embedded AWS account, after whatever was done in it."""

    def leftovers(self) -> list[str]:
        """What is left in it."""
        ...


class Rehearse(Protocol):
    """Opens an engine for a stack in an embedded account; ``fail`` makes resources fail."""

    def __call__(
        self, target: Target, *, fail: Sequence[str] = ()
    ) -> AbstractContextManager[tuple[Engine, Account]]: ...


_supplied: list[Rehearse] = []


def supply(rehearsed: Rehearse) -> None:
    """Make ``--rehearse`` use this."""
    _supplied[:] = [rehearsed]


def rehearsed(target: Target, *, fail: Sequence[str] = ()) -> AbstractContextManager[tuple[Engine, Account]]:
    """An engine for the stack in its own embedded account. Raises Failure where there is no rehearsal."""
    if not _supplied:
        raise cannot_know("the rehearsal is not there", "run `hyperpod` in a folder of the project that has rehearsal/")
    return _supplied[0](target, fail=fail)

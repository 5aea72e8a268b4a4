"""One test for the rows of a table: hundreds of tests of a line each cost more than what they look at."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest


def each(rows: Mapping[str, Any] | Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with every row as its first argument, fixtures after it; the test fails naming every row that does.

    The keys of a mapping are the rows' names; a row that is a tuple is several arguments.
    """
    named = dict(rows.items() if isinstance(rows, Mapping) else ((str(row), row) for row in rows))
    assert named, "no rows"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        taken = len(next(iter(named.values()))) if isinstance(next(iter(named.values())), tuple) else 1

        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            wrong = []
            for name, row in named.items():
                try:
                    test(*(row if isinstance(row, tuple) else (row,)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(f"{name}: {type(error).__name__}: {error}")
            assert not wrong, f"{len(wrong)} of {len(named)} rows\n" + "\n".join(wrong)

        signature = inspect.signature(test)
        whole.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[taken:]
        )
        return whole

    return decorate

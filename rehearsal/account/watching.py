"""Shows boto3's calls to watchers before they reach moto."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# A service's operation, as botocore models it, and the parameters of the request. Raises Refused.
OnCall = Callable[[Any, Mapping[str, Any]], None]
_watching: ContextVar[OnCall | None] = ContextVar("watching", default=None)


@contextmanager
def watched(on_call: OnCall | None) -> Iterator[None]:
    """While this lasts, every call is shown first."""
    before = _watching.set(on_call)
    try:
        yield
    finally:
        _watching.reset(before)


def as_aws() -> Any:
    """Hide the calls that AWS makes by itself, or that only moto needs."""
    return watched(None)


def before_call(params: dict[str, Any], model: Any, **_: Any) -> None:
    """The handler that botocore calls before it builds a request."""
    if on_call := _watching.get():
        with as_aws():
            on_call(model, params)

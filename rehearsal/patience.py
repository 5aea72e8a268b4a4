"""Waits with a limit, and long work that says what it does: live in a terminal, a line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

_EVERY_SECONDS = 30.0


@contextmanager
def told(console: Console, what: str, every: float = _EVERY_SECONDS) -> Iterator[Callable[[str], None]]:
    """Say what is done now, and again while it lasts. Yields a function that takes the step it is at."""
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda step: status.update(f"{what}: {step}")
        return
    began, over, at = time.monotonic(), threading.Event(), [""]

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def repeat() -> None:
        while not over.wait(every):
            step = f", at {at[0]}" if at[0] else ""
            say(f"  still at it after {time.monotonic() - began:.0f} s{step}")

    say(what)
    teller = threading.Thread(target=repeat, daemon=True)
    teller.start()
    try:
        yield lambda step: at.__setitem__(0, step)
    finally:
        over.set()
        teller.join()


def until(true: Callable[[], object], seconds: float, *, every: float = 0.15) -> bool:
    """Wait for a condition. Returns whether it came true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True

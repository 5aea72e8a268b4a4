"""Ending a rehearsal early: a signal unwinds it, so that everything it started is stopped and removed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end; the text is its name. Passes through whatever Ctrl-C does, asyncio too."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Signals that end a program raise Interrupted; SIGINT even if it was ignored, as in background jobs of a shell.

    What then fails because it was interrupted, as a half-imported module does, is Interrupted too. For the main thread:
    ValueError on any other.
    """
    heard: list[Interrupted] = []

    def interrupt(number: int, frame: object) -> None:
        heard.append(Interrupted(signal.Signals(number).name))
        raise heard[-1]

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    except Exception as consequence:
        if not heard:
            raise
        raise heard[0] from consequence
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Skips waiting: a script's sleeps take a hundredth of their time, and its clocks advance by all of it.

Loaded if REHEARSAL_VIRTUAL_TIME is set, as in the fault scenarios. /run/rehearsal/slept says how far the clock is
ahead. The commands that ask the emulated AWS read it, so that "after 60 seconds" is true for both sides. Two threads
that sleep at the same time advance the clock once.
"""

# Loaded into every Python that a script starts.
# mypy: ignore-errors
import fcntl
import os
import threading
import time

AHEAD = "/run/rehearsal/slept"
SHARE = 0.01
_sleep, _wait, _real = time.sleep, threading.Event.wait, time.monotonic
_clocks = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}


def _ahead(until=0.0):
    """How far the clock is ahead, after moving the monotonic clock to ``until`` if it is behind that."""
    file = os.open(AHEAD, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        ahead = float(os.pread(file, 64, 0) or 0)
        if until > _real() + ahead:
            ahead = until - _real()
            text = b"%-40.6f" % ahead
            os.pwrite(file, text, 0)
        return ahead
    finally:
        os.close(file)


def sleep(seconds):
    until = _real() + _ahead() + seconds
    _sleep(seconds * SHARE)
    _shift[0] = _ahead(until)


def wait(event, timeout=None):
    if timeout is None or event.is_set():
        return _wait(event, timeout)
    until = _real() + _ahead() + timeout
    if _wait(event, timeout * SHARE):
        return True
    _shift[0] = _ahead(until)
    return event.is_set()


def _moved(clock):
    return lambda: clock() + _shift[0]


_shift = [_ahead()]
time.sleep, threading.Event.wait = sleep, wait
for _name, _clock in _clocks.items():
    setattr(time, _name, _moved(_clock))

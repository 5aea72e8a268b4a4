"""The edges of a command line: what its streams take, and how it ends where nobody foresaw the cause."""

import codecs
import io
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..failures import Exit, Failure, explain

# The name under which ``_plainly`` is registered, and what it writes instead of characters that a stream has not.
_PLAIN = "hyperpod-plain"
_INSTEAD = {"✓": "+", "✗": "x", "█": "#", "░": ".", "━": "=", "─": "-", "·": ".", "…": "...", "\u00d7": "x", "⚠": "!"}


def run_to_its_end(work: Callable[[], int], complain: Callable[[Failure], None], stack: Callable[[], str]) -> int:
    """Run a command line and return its exit code. No error leaves it as a traceback, that of a defect goes to a file.

    ``complain`` says why it failed, ``stack`` is asked for the stack's name for its hint.
    """
    _prepare_streams()
    try:
        code = work()
    except BrokenPipeError:
        code = Exit.GOOD
    except Exception as error:
        failure = explain(error, stack()) or unforeseen(error)
        # Standard error can be full, too. The exit code says what is left to say.
        with suppress(OSError):
            complain(failure)
        code = failure.code
    return _flushed(code)


def unforeseen(error: Exception) -> Failure:
    """A defect of this project: its cause in a line, and where its traceback is kept."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({Path(one.filename).name}, line {one.lineno})" for one in last)
    cause = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
    try:
        handle, path = tempfile.mkstemp(prefix="hyperpod-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{shlex.join(sys.argv)}\nPython {sys.version}\n\n")
            file.writelines(traceback.format_exception(error))
    except OSError as unwritten:
        return Failure(f"{cause}{where}; its traceback could not be kept: {unwritten.strerror}", name="defect")
    return Failure(f"{cause}{where}", f"report it with the traceback, which is in {path}", name="defect")


def _prepare_streams() -> None:
    """Replace what a stream has no character for, and give one that is closed the null device.

    Otherwise the next file to be opened would get the closed one's number, and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = getattr(sys, name)
        if stream is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            codecs.register_error(_PLAIN, _plainly)
            stream.reconfigure(errors=_PLAIN)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_INSTEAD.get(one, "?") for one in error.object[error.start : error.end]), error.end


def _flushed(code: int) -> int:
    """The exit code, once everything is written. What cannot be written is dropped: Python would fail at its exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if code == Exit.GOOD and not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"standard output: {error.strerror}\n")
            return Exit.FAILED
    return code

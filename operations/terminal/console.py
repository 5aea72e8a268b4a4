"""What the verbs print: tables and lines for people, JSON for machines, messages on standard error."""

import os
import select
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ..failures import Failure, bad_input
from . import command_line
from .output_options import OPTIONS, text_of
from .tables import Column, Rows

# Used by every verb.
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Stack = Annotated[str, typer.Argument(metavar="STACK", help="The stack's name, for example dev for Pulumi.dev.yaml.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

MARKS = {
    "PASS": "green", "FAIL": "red", "UNKNOWN": "yellow", "SKIP": "dim",
    "confirmed": "green", "refuted": "red", "unknown": "yellow",
}  # fmt: skip


def out() -> Console:
    """The current standard output, which tests and pipes replace. Lines are not wrapped, so commands can be copied."""
    return Console(soft_wrap=True, emoji=False)


def err() -> Console:
    """Standard error: progress, questions and failures, so that standard output stays clean for --json."""
    return Console(stderr=True, soft_wrap=True, emoji=False)


def progress() -> Console:
    """Standard error for what goes on meanwhile; nothing with -q."""
    return Console(stderr=True, soft_wrap=True, emoji=False, quiet=OPTIONS.quiet)


def emit(document: Any) -> None:
    """A result for machines."""
    print(text_of(document, _plain))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def say(line: str = "", style: str = "") -> None:
    """A line for people, printed verbatim: nothing in it is markup."""
    out().print(command_line.printable(line), style=style, markup=False, highlight=False)


def prose(line: str, style: str = "") -> None:
    """Words to read: a terminal gets them wrapped between words. What people copy goes through ``say``."""
    for part in command_line.wrapped(line, out()):
        say(part, style)


def note(line: str, style: str = "dim") -> None:
    """A line on standard error, apart from the result; nothing with -q."""
    if OPTIONS.quiet:
        return
    for part in command_line.wrapped(line, err()):
        err().print(part, style=style, markup=False, highlight=False)


def remark(line: str) -> None:
    """Words beside the result, on where it comes from or what it means; nothing with -q."""
    if not OPTIONS.quiet:
        prose(f"  {line}", "dim")


def complain(failure: Failure, as_json: bool) -> None:
    """Print why a verb ended, and what to do next."""
    command_line.complain(failure)
    # Last, since standard output may be what has failed.
    if as_json:
        emit(failure.as_json())


def table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[object]], spare: Sequence[str] = ()
) -> list[str]:
    """A table in which PASS, FAIL and UNKNOWN are coloured (tables.py). Returns the columns that it left out."""
    if title:
        prose(title, style="bold")
    cells = [[Text(command_line.printable(str(cell)), MARKS.get(str(cell), "")) for cell in row] for row in rows]
    drawn = Rows(columns, cells, spare)
    out().print(drawn)
    return drawn.left_out(out())


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless told not to. Raises Failure if the answer is no, or there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_input(f"{question} There is no terminal to answer from.", "add --yes")
    if not typer.confirm(command_line.printable(question), err=True):
        raise Failure("nothing was changed")


def can_ask() -> bool:
    """Whether a person may be asked meanwhile: at a terminal, outside CI, and not with -q."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not OPTIONS.quiet and not os.environ.get("CI")


# Seconds between two looks at whether a question has become pointless.
_LOOK_SECONDS = 0.2


def answered(question: str, pointless: threading.Event) -> bool:
    """Whether a person says yes. Waits until the event is set and never longer: then the answer is no."""
    err().print(f"{question} [y/N]: ", end="", markup=False, highlight=False)
    while not pointless.is_set():
        if select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    err().print()
    return False

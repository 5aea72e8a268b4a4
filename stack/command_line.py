"""What both command lines have in common: how they look, and how they say that something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from rich.console import Console

from .failures import Exit, Failure, bad_input


def new_app(epilog: str) -> typer.Typer:
    """A command line without verbs, which shows its help as plain text."""
    return typer.Typer(
        epilog=epilog,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


@cache
def _command(app: typer.Typer) -> Any:
    """Typer's reading of every verb's signature, which stays the same."""
    return typer.main.get_command(app)


def run(app: typer.Typer, words: Sequence[str], program: str) -> int:
    """Run a command line and return its exit code. Verbs find ``words`` in their context's ``obj``.

    Raises Failure where the words are wrong, and whatever a verb raises.
    """
    command = _command(app)
    try:
        code = command(args=list(words), prog_name=program, standalone_mode=False, obj=list(words))
        return code if isinstance(code, int) else Exit.GOOD
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.FAILED
    except typer.TyperException as refused:
        verb = words[0] if words and words[0] in command.commands else ""
        raise bad_input(refused.format_message(), f"{program} {verb} --help".replace("  ", " ")) from None


def complain(failure: Failure) -> None:
    """Why a verb ended and what to do next, on standard error."""
    errors = Console(stderr=True, soft_wrap=True, emoji=False)
    errors.print(failure.message, style="red", markup=False, highlight=False)
    if failure.hint:
        errors.print(f"Next: {failure.hint}", markup=False, highlight=False)

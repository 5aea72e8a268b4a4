"""What both command lines have in common: how they look, and how they say that something is wrong."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from ..failures import Exit, Failure, bad_input
from ..project import stack_names
from .help_context import HelpContext
from .interrupts import Interrupted
from .output_options import OPTIONS, with_output_options
from .stack_argument import ROOT, VARIABLE, Verb

# A command as the next step, and the comment after it; a command within a sentence; what stands for its spaces.
_COPIED = re.compile(r"( *Next: (?:hyperpod|pulumi|aws|make|mkdir|kubectl|helm|sudo|export)\b.*?)(?=\s{4}|$)(.*)")
_WITHIN = re.compile(
    r"`[^`]+`|(?<=[:;] )(?:pulumi|aws|make|kubectl|helm|sudo|export|[A-Z]+=\S+) [^,;()`]+"
    r"|(?<![\w`-])hyperpod(?: (?!(?:and|or|then|to|has|lists|shows|with|for|where|before|after|again|is|are|in|on)\b)"
    r"[^\s,;()`]+)+"
)
_NO_BREAK = "\ue000"


class Verbs(TyperGroup):
    """Typer makes of Ctrl-C an exit code without a word; here it is a failure like others."""

    context_class = HelpContext

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List verbs under their panels, which Typer's plain help leaves out."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        width = max((len(name) for name, _ in shown), default=0)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, one in shown:
            panel = getattr(one, "rich_help_panel", None)
            row = (name.ljust(width), one.get_short_help_str(100))
            panels.setdefault(panel if isinstance(panel, str) else "Commands", []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. Raises Failure where somebody has ended it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            other = isinstance(interrupt, Interrupted) and str(interrupt) != "SIGINT"
            raise Failure(f"Ended by {interrupt}." if other else "Cancelled.", code=Exit.CANCELLED) from interrupt


def called() -> str:
    """The command ``hyperpod``, as one can type it here: by its path where PATH does not have this project's."""
    own = Path(sys.executable).with_name("hyperpod")
    found = shutil.which("hyperpod")
    return "hyperpod" if not own.exists() or (found and Path(found).samefile(own)) else os.path.relpath(own)


def new_app(epilog: str, cls: type[Verbs] = Verbs) -> typer.Typer:
    """A command line without verbs, which shows its help as plain text."""
    return typer.Typer(
        cls=cls,
        epilog=epilog,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


@cache
def command(app: typer.Typer) -> Any:
    """Typer's reading of every verb's signature, which stays the same."""
    return typer.main.get_command(app)


def add(app: typer.Typer, name: str, verb: Callable[..., Any], **more: Any) -> None:
    """Add a verb, with the options of every verb."""
    app.command(name, cls=Verb, **more)(with_output_options(verb))


def new_group(help_text: str) -> typer.Typer:
    """A noun for the verbs that belong to it."""
    return typer.Typer(cls=Verbs, help=help_text, add_completion=False)


def run(app: typer.Typer, words: Sequence[str], program: str) -> int:
    """Run a command line and return its exit code. Raises Failure for wrong words, and whatever a verb raises."""
    OPTIONS.begin(words)
    try:
        code = command(app)(args=list(words) or ["--help"], prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else Exit.GOOD
    except SystemExit as ended:
        # Rich and Typer end so where nobody reads on, as in `hyperpod types | head -1`.
        if isinstance(ended.__context__, BrokenPipeError):
            return Exit.GOOD
        return ended.code if isinstance(ended.code, int) else Exit.FAILED
    except typer.TyperException as refused:
        raise _described(refused) from None


def _described(refused: Any) -> Failure:
    """Typer's message, with the stacks where none is named."""
    context, param = getattr(refused, "ctx", None), getattr(refused, "param", None)
    usage = f"{context.command_path} --help" if context else "hyperpod --help"
    if getattr(param, "name", "") == "stack":
        usage = f"name one of {', '.join(stack_names(ROOT))}, or set {VARIABLE}    {usage}"
    return bad_input(refused.format_message(), usage)


def complain(failure: Failure) -> None:
    """Why a verb ended, what to do next and where to read on, on standard error. There is no more to Ctrl-C."""
    errors = Console(stderr=True, soft_wrap=True, emoji=False)
    hint = f"Next: {failure.hint}" if failure.hint else ""
    colour, more = ("yellow", "") if failure.code == Exit.CANCELLED else ("red", failure.known.more)
    for text, style in ((failure.message, colour), (hint, ""), (more, "dim")):
        for line in wrapped(text, errors) if text else ():
            errors.print(line, style=style, markup=False, highlight=False)


def printable(text: str, keep: str = "\n\t") -> str:
    """Words of others, such as a job's name or a log's line: without what would steer a terminal, or look like nothing.

    Each control, format or private character is a question mark, but those in ``keep``.
    """
    return "".join(one if one.isprintable() or one in keep else "?" for one in text)


def wrapped(text: str, console: Console) -> list[str]:
    """The lines of words to read: in a terminal they are broken between words only, and indented from then on.

    Commands are never broken, because people copy them: lines with four spaces before them, a command after ``Next: ``
    up to its comment, and what stands between backticks.
    """
    lines: list[str] = []
    for line in printable(text).splitlines():
        if not console.is_terminal or len(line) <= console.width or line.startswith("    "):
            lines.append(line)
        else:
            lines += broken(line, console.width)
    return lines


def broken(line: str, width: int) -> list[str]:
    """One line of words, as lines of this width. What people copy may be longer."""
    further = " " * (len(line) - len(line.lstrip()) + 2)
    copied = _COPIED.match(line)
    if copied:
        line = further + copied[2].strip()
    whole = _WITHIN.sub(lambda within: within[0].replace(" ", _NO_BREAK), line)
    lines = wrap(whole, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    return [*([copied[1]] if copied else []), *(part.replace(_NO_BREAK, " ") for part in lines)]

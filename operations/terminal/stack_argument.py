"""The stack of a verb: its first word, or the environment variable HYPERPOD_STACK."""

import os
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from ..project import stack_names
from .help_context import HelpContext

ROOT = Path(__file__).parents[2]
VARIABLE = "HYPERPOD_STACK"


class Verb(TyperCommand):
    """A verb whose stack the environment can name. Typer's ``envvar`` would give STACK the first word of others."""

    context_class = HelpContext

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the variable's stack first where no word is a stack, as in ``node connect workers-2``."""
        own = args[: args.index("--")] if "--" in args else args
        named = os.environ.get(VARIABLE)
        # Without a stack `assumptions` means something else.
        takes_one = any(one.name == "stack" and (one.required or one.default) for one in self.params)
        if named and takes_one and not {*own} & {"-h", "--help", *stack_names(ROOT)}:
            args = [named, *args]
        return super().parse_args(ctx, args)

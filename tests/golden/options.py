"""The options of the nodes' commands and of the trainers on nodes, as ``--help`` tells them."""

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hyperpod_commands import nanogpt, nccl_test, nccom_test, slow_node, validate
from hyperpod_node.accounting import accounts
from hyperpod_node.people import apply
from hyperpod_node.slurm import change

OPTIONS = Path(__file__).parent / "options"
TRAINING = Path(__file__).parents[2] / "lifecycle/training"
COMMANDS = (
    accounts.parser,
    nanogpt._options,
    nccl_test.parser,
    nccom_test.parser,
    apply.parser,
    slow_node.parser,
    change.parser,
    validate.parser,
)


def options() -> dict[str, dict[str, Any]]:
    """Of every command and trainer, what each option takes."""
    commands = {(parser := make()).prog: _told(parser) for make in COMMANDS}
    # As for scripts: they find their neighbours.
    with patch.object(sys, "path", [*sys.path, str(TRAINING)]):
        nano, sweep, llama = (
            runpy.run_path(str(TRAINING / f"{name}.py")) for name in ("nanogpt", "gloo_sweep", "llama")
        )
    trainers = {"nanogpt.py": nano["_options"](), "gloo_sweep.py": sweep["_options"](), "llama": llama["parser"]("any")}
    return {**commands, **{name: _told(parser) for name, parser in trainers.items()}}


def _told(parser: argparse.ArgumentParser) -> dict[str, Any]:
    # Not format_help, whose words differ between releases of Python.
    title = {"description": parser.description, "groups": [group.title for group in parser._action_groups[2:]]}
    actions = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
    return {"command": title, **{", ".join(one.option_strings) or one.dest: _option(one) for one in actions}}


def _option(action: argparse.Action) -> dict[str, Any]:
    found = {
        "takes": "nothing" if action.nargs == 0 else getattr(action.type, "__name__", "text"),
        "of": list(action.choices or ()),
        "default": "none" if action.default is argparse.SUPPRESS else action.default,
        "required": action.required,
        "help": action.help,
    }
    return {name: value for name, value in found.items() if value is not None and value is not False and value != []}

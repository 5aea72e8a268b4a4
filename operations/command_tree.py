"""The verbs with their options, and the words that they take: what ``completion`` keeps in a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from components.catalogue.accelerators import CATALOGUE
from components.catalogue.regions import REGIONS
from components.common.documents import load
from components.config.keys import Key, keys

from .assumptions import register
from .failures import advice
from .jobs.specs import JOBS
from .spending import types
from .target import ROOT
from .terminal import command_line

# What can stand for a parameter, by its placeholder or its name.
_VALUES = {
    "STACK": "stacks",
    "OTHER": "stacks",
    "GROUP": "groups",
    "NODE": "nodes",
    "NODE|GROUP": "nodes",
    "leave_out": "nodes",
    "KEY|CODE|TEXT": "keys",
    "KEY=VALUE": "settings",
    "JOB": "jobs",
    "TYPE": "types",
    "TEXT": "types",
    "region": "regions",
    "zone": "zones",
    "--id": "assumptions",
}


def described(app: typer.Typer) -> dict[str, Any]:
    """The whole command line, and the words that are the same for all stacks, each with its meaning."""
    tree = _command(command_line.command(app))
    schema = load((ROOT / "Pulumi.yaml").read_text())["config"]
    every = [one for top in keys(schema) for one in (top, *top.below())]
    types_there = [(row.name, _told(row)) for row in CATALOGUE.values() if row.hyperpod]
    regions = [(name, "") for name, one in REGIONS.items() if one.hyperpod]
    zones = [(zone, name) for name, one in REGIONS.items() if one.hyperpod for zone in one.zone_ids]
    many = {"availabilityZoneId": zones, "controllerInstanceType": types_there}
    return {
        "tree": tree,
        "words": {
            "keys": [
                *((one.path, _sentence(one)) for one in every),
                *((one.code, one.title) for one in advice.known()),
            ],
            "jobs": [(name, one.title) for name, one in JOBS.items()],
            "settings": [
                (f"{one.path}={word}", meaning)
                for one in every
                if "." not in one.path
                for word, meaning in many.get(one.path) or [(each, _sentence(one)) for each in one.choices or ("",)]
            ],
            "types": types_there,
            "regions": regions,
            "zones": zones,
            "assumptions": [(row.id, row.claim) for row in register()],
        },
    }


def _sentence(key: Key) -> str:
    return key.meaning.partition(". ")[0]


def _told(row: Any) -> str:
    return f"{types.accelerators(row)}, {types.price(row)} $/h" if row.accelerator else f"{types.price(row)} $/h"


def _command(command: Any) -> dict[str, Any]:
    found = {
        "help": command.get_short_help_str(100),
        "params": [_param(one) for one in command.params if not one.name.endswith("_completion")],
    }
    below: Mapping[str, Any] | None = getattr(command, "commands", None)
    return found if below is None else {**found, "commands": {name: _command(one) for name, one in below.items()}}


def _param(param: Any) -> dict[str, Any]:
    option = param.param_type_name == "option"
    return {
        "name": param.name,
        "opts": _spelt(param) if option else [],
        "help": getattr(param, "help", "") or "",
        "values": _values(param),
        "flag": option and param.is_flag,
        "many": param.multiple or param.nargs != 1,
        "required": param.required and not option,
    }


def _spelt(param: Any) -> list[str]:
    """The option's names as a declaration has them, with what turns it off."""
    return ["/".join([*param.opts, *param.secondary_opts])] if param.secondary_opts else list(param.opts)


def _values(param: Any) -> str | Sequence[str] | None:
    if choices := param.type_descriptor.choices:
        return [str(one) for one in choices]
    placeholder = (param.metavar or "").strip("[].")
    names = (placeholder, param.name, *param.opts)
    return next((_VALUES[name] for name in names if name in _VALUES), None)

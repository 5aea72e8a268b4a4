"""The verb ``explain``."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from components.catalogue.regions import REGIONS
from components.config.keys import Key, keys
from components.config.model import Settings
from components.documents import load
from stack import advice
from stack.failures import bad_input

from .. import console
from ..target import ROOT


def explain_command(
    key: Annotated[
        str,
        typer.Argument(
            metavar="[KEY]",
            help="A key, or a part of one, as fsx.storageGiB, or a failure's code. Without it, all keys.",
        ),
    ] = "",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print a JSON schema of Pulumi.STACK.yaml, for editors.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Explain a key of the configuration, or a failure.

    Says which values a key takes, what they mean, and what a change of it does
    to a deployed stack; of a failure what is behind it and what to do.

    \b
      hyperpod explain
      hyperpod explain workers
      hyperpod explain fsx.storageGiB
      hyperpod explain HP016
      hyperpod explain --schema > stack.schema.json
    """
    if schema:
        print(json.dumps(_schema(), indent=2))
        return
    if re.fullmatch(r"(?i)hp\d+", key):
        _explain_failure(key.upper(), as_json)
        return
    every = keys(load((ROOT / "Pulumi.yaml").read_text())["config"])
    if not key:
        console.emit([asdict(one) for one in every]) if as_json else _list("", every)
        return
    found = _find(key, every)
    if as_json:
        console.emit(asdict(found))
        return
    console.say(f"hyperpod:{found.path}", "bold")
    console.prose(f"  {found.meaning}")
    for what, text in (
        ("Values", found.values),
        ("Default", found.default),
        ("A change in a deployed stack", found.change),
    ):
        if text:
            console.prose(f"  {what}: {text}")
    if found.parts:
        console.say()
        _list(f"{found.path}.", found.parts)
    elif "." not in found.path:
        console.say(f"  pulumi config set hyperpod:{found.path} VALUE", "dim")


def _explain_failure(code: str, as_json: bool) -> None:
    found = next((one for one in advice.known() if one.code == code), None)
    if found is None:
        raise bad_input(f'there is no failure "{code}"', f"{advice.PAGE} has all of them")
    if as_json:
        console.emit(asdict(found))
        return
    console.say(f"{found.code}: {found.name}", "bold")
    console.prose(f"  {found.seen}", "dim")
    console.prose(f"  {found.why}")
    console.prose(f"  Next: {found.step.format(stack='STACK')}")


def _schema() -> dict[str, Any]:
    """A JSON schema of a stack's file, whose keys have the project's name before them."""
    whole = Settings.model_json_schema(by_alias=True)
    own = {f"hyperpod:{name}": one for name, one in whole["properties"].items()}
    region = {"aws:region": {"type": "string", "enum": sorted(REGIONS)}}
    config = {"type": "object", "properties": {**region, **own}, "required": ["aws:region"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack of HyperPod on Pulumi",
        "type": "object",
        "properties": {"config": config},
        "$defs": whole["$defs"],
    }


def _find(wanted: str, every: Sequence[Key]) -> Key:
    """The key of this path, which may have hyperpod: before it and the numbers of members in it."""
    path = re.sub(r"\[\d+\]", "", wanted.removeprefix("hyperpod:"))
    known = {one.path: one for top in every for one in (top, *top.below())}
    if path in known:
        return known[path]
    near = difflib.get_close_matches(path, known, n=1) or [one for one in known if one.endswith(f".{path}")]
    raise bad_input(f'there is no key "{wanted}"', f"did you mean {near[0]}?" if near else "hyperpod explain")


def _list(before: str, found: Sequence[Key]) -> None:
    rows = [(f"{before}{one.name}", one.values or "...", one.default, _sentence(one.meaning)) for one in found]
    console.table("", ["key", "values", "default", "meaning"], rows)


def _sentence(text: str) -> str:
    """The first sentence. One ends with a dot before a space."""
    return re.split(r"(?<=\.) |: ", text, maxsplit=1)[0].rstrip(".")

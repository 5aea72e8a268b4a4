"""The verb ``explain``."""

import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from components.catalogue.regions import REGIONS
from components.common.documents import load
from components.config.keys import Key, keys
from components.config.model import Settings

from ..failures import Failure, advice, bad_input, cannot_know, reading
from ..project.stack_file import BESIDE
from ..target import ROOT
from ..terminal import console

# Names of errors, unlike keys, begin with a capital: NRT_TIMEOUT, NodeCreationFailure.
_ERROR_CODE = r"[A-Z]+_[A-Z_]+|(?:[A-Z][a-z]*){2,}"
# Keys of the providers and of Pulumi; other namespaces are misspelt, or of programs that the schema does not know.
_OTHERS = "^(aws|aws-native|kubernetes|pulumi):"
# Where a failure that nobody knows has left its cause.
_UNKNOWN = """no failure that the project knows reports this. Three logs have the cause:
  set-up of nodes: hyperpod errors STACK, or CloudWatch, /aws/sagemaker/Clusters/CLUSTER/ID
  scheduler: journalctl -u slurmctld on the controller, -u slurmd on the node; kubectl describe pod POD
  job: slurm-JOB.out, or kubectl logs POD --previous; the first error of the first rank that failed"""


def explain_command(
    key: Annotated[
        str,
        typer.Argument(
            metavar="[KEY|CODE|TEXT]",
            help="A key or a part of one, such as fsx.storageGiB; a failure's code; or the text of an error, "
            "in quotes, where - reads it from standard input. Without it, all keys.",
        ),
    ] = "",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print a JSON schema of Pulumi.STACK.yaml, for editors.")
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Explain a key, a failure, or an error that you paste.

    Says which values a key takes, what they mean, and what a change of it does
    to a deployed stack. For a failure, or an error that you paste from AWS,
    Kubernetes, Slurm, NCCL or PyTorch: the cause, the next step and the page.

    An error that is not known is explained by its words, which is also a
    success: a script reads "known" of --json. Exits with 3 where the words
    tell nothing.

    \b
      hyperpod explain
      hyperpod explain workers
      hyperpod explain fsx.storageGiB
      hyperpod explain HP016
      hyperpod explain "NCCL WARN Bootstrap : no socket interface found"
      hyperpod explain - < slurm-82.out
      hyperpod explain --schema > stack.schema.json
    """
    if schema:
        print(json.dumps(_schema(), indent=2))
        return
    if re.fullmatch(r"(?i)hp\d+", key):
        _explain_failure(_coded(key), as_json)
        return
    if key == "-" or re.search(r"\s", key.strip()):
        text = sys.stdin.read() if key == "-" else key
        _explain_text(text, as_json)
        return
    every = keys(load((ROOT / "Pulumi.yaml").read_text())["config"])
    if not key:
        console.emit([asdict(one) for one in every]) if as_json else _list("", every)
        return
    try:
        found = _find(key, every)
    except Failure:
        # One word of an error, such as OOMKilled or NRT_TIMEOUT.
        if advice.matching(key) or re.fullmatch(_ERROR_CODE, key):
            _explain_text(key, as_json)
            return
        raise
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


def _coded(code: str) -> advice.Advice:
    """The failure that has this code. Raises Failure for an unknown one."""
    found = next((one for one in advice.known() if one.code == code.upper()), None)
    if found is None:
        raise bad_input(f'there is no failure "{code.upper()}"', f"{advice.PAGE} has all of them")
    return found


def _explain_text(text: str, as_json: bool) -> None:
    """Explain a pasted text: by the failure that it reports, else by its words. Raises Failure if they tell nothing."""
    # A message of the project names its own code.
    own = re.search(r"hyperpod explain (HP\d+)", text)
    found = _coded(own.group(1)) if own else advice.answering(text)
    if found:
        _explain_failure(found, as_json)
        return
    read, near = reading.read(text), advice.closest(text)
    if read is None:
        said = "".join(f"\n  {one.code}: {one.title}" for one in near)
        said = f"{_UNKNOWN}\nThe closest known ones, by their words only:{said}" if near else _UNKNOWN
        raise cannot_know(said, "paste the first line with an error from one of these logs")
    if as_json:
        console.emit({"known": False, "code": "", "reading": asdict(read), "closest": [one.code for one in near]})
        return
    console.prose(f"No known failure matches. By its {'code' if read.code else 'words'}: {read.title}", "bold")
    if read.nouns:
        console.prose("  It names: " + "; ".join(f"{name} {noun}" for name, noun in read.nouns.items()), "dim")
    console.prose(f"  {read.why}")
    console.prose(f"  Next: {read.step}")
    if read.log:
        console.prose(f"  Log: {read.log}")
    for one in near:
        console.prose(f"  Close to it, by its words only: {one.code}, {one.title}", "dim")


def _explain_failure(found: advice.Advice, as_json: bool) -> None:
    if as_json:
        console.emit({"known": True} | asdict(found) | {"page": found.page, "closest": []})
        return
    console.prose(f"{found.code}: {found.title}", "bold")
    if found.seen not in ("", found.title):
        console.prose(f"  {found.seen}", "dim")
    console.prose(f"  {found.why}")
    console.prose(f"  Next: {found.step.format(stack='STACK')}")
    console.say(f"  More: {found.page}", "dim")


def _schema() -> dict[str, Any]:
    """A JSON schema of a stack's file, whose keys have the project's name before them."""
    whole = Settings.model_json_schema(by_alias=True)
    own = {f"hyperpod:{name}": one for name, one in whole["properties"].items()}
    region = {"aws:region": {"type": "string", "enum": sorted(REGIONS)}}
    config = {
        "type": "object",
        "properties": {**region, **own},
        "patternProperties": {_OTHERS: {}},
        "additionalProperties": False,
        "required": ["aws:region"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack of HyperPod on Pulumi",
        "type": "object",
        "properties": {"config": config, **{key: {} for key in BESIDE}},
        "additionalProperties": False,
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
    rows = [(f"{before}{one.name}", one.values or "...", one.default, _summary(one)) for one in found]
    console.table("", ["key", "values", "default", "meaning"], rows)


def _summary(key: Key) -> str:
    """The first sentence, without the values that it lists. One ends with a dot before a space."""
    sentence = re.split(r"(?<=\.) ", key.meaning, maxsplit=1)[0].rstrip(".")
    head, *_ = sentence.split(": ", maxsplit=1)
    return sentence if head in key.values.split() else head

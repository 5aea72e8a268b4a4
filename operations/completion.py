"""What the Tab key offers, by Typer's own mechanism but without the verbs, whose import takes a second and a half.

A file has every verb's options and the words that are the same for all stacks. It is written again once the code or
Pulumi.yaml has changed. Only the nodes of a cluster are asked of AWS.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
import yaml
from typer.core import TyperGroup

from .project import stack_names
from .terminal.stack_argument import VARIABLE, Verb

ROOT = Path(__file__).parent.parent
FOLDER = ".operations"
# Seconds that a Tab waits for AWS, and for which it takes what AWS said last.
PATIENCE, LASTING = 4.0, 120.0
# The variable for the key whose value is typed, as in --config KEY=VALUE.
_KEY = "_HYPERPOD_COMPLETE_KEY"
# What the file is made from.
_SOURCES = (
    "*/commands/*.py",
    "*/*.py",
    "operations/failures/known/*.yaml",
    "components/*/*.py",
    "components/*/*.csv",
    "Pulumi.yaml",
)
# Words that can come next, each with its meaning or nothing.
Offer: TypeAlias = list[tuple[str, str]]


def main(described: Callable[[], dict[str, Any]]) -> int:
    """Answer the shell, whose environment variables say what is typed. Says nothing of what fails: it is no command.

    ``described`` imports the verbs and describes them; it is called only where the file is older than they are.
    """
    with suppress(Exception):
        _take_apart()
        command(_kept(described))(prog_name="hyperpod", standalone_mode=False)
    return 0


def _take_apart() -> None:
    """Keep the KEY= before the word to be completed apart from the line: bash cuts KEY=VALUE into three words."""
    *line, last = os.environ.get("COMP_WORDS", "").split("\n")[: int(os.environ.get("COMP_CWORD") or 0) + 1]
    line, last = ([*line, last], "") if last == "=" else (line, last)
    option = line[-2:-1] if line[-2:-1] and line[-2].startswith("-") else []
    cut = line[-1:] == ["="]
    os.environ[_KEY] = f"{line[-2]}=" if cut and not option else ""
    if cut:
        line = [*line[:-2], *option, last]
        os.environ |= {"COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(line) - 1)}


def _kept(described: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """The file's content, for the code as it is now."""
    now = state()
    file = ROOT / FOLDER / "completion.json"
    with suppress(OSError, ValueError):
        known: Mapping[str, Any] = json.loads(file.read_text())
        if known["state"] == now:
            return known
    known = {"state": now, **described()}
    _write(file, known)
    return known


def state() -> int:
    """When what the file is made from was changed last, in nanoseconds."""
    return max(path.stat().st_mtime_ns for pattern in _SOURCES for path in ROOT.glob(pattern))


def _write(file: Path, content: object) -> None:
    """Write the file whole or not at all: two shells may press Tab at once. Without it, each Tab takes longer."""
    partial = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(content))
        partial.replace(file)


class _Verbs(TyperGroup):
    """Knows the stack that is typed: an option that has no value yet keeps Typer from reading the arguments."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **more: Any) -> Any:
        known = [*args, os.environ.get(VARIABLE, "")]
        named = {} if parent else {"obj": next((word for word in known if word in stack_names(ROOT)), "")}
        return super().make_context(info_name, args, parent, **more, **named)


def command(known: Mapping[str, Any]) -> Any:
    """A command that has the words of all verbs, and does nothing."""
    return typer.main.get_command(_group(known["tree"], known["words"]))


def _group(tree: Mapping[str, Any], words: Mapping[str, Offer], name: str = "") -> typer.Typer:
    group = typer.Typer(cls=_Verbs, add_completion=not name, rich_markup_mode=None)
    group.callback()(_taking(tree["params"], words))
    verbs = dict(tree["commands"])
    if name == "rehearse":
        # `rehearse STACK` is `rehearse deployment STACK`.
        whole = verbs["deployment"]
        alone = {**whole, "params": [one for one in whole["params"] if one["name"] != "stack"]}
        verbs |= dict.fromkeys(stack_names(ROOT), alone)
    for verb, below in verbs.items():
        if "commands" in below:
            group.add_typer(_group(below, words, verb), name=verb, help=below["help"])
        else:
            taking = _taking(below["params"], words)
            group.command(verb, cls=Verb, short_help=below["help"])(taking)
    return group


def _taking(params: Sequence[Mapping[str, Any]], words: Mapping[str, Offer]) -> Callable[..., None]:
    """A function with these parameters, of which Typer makes a verb."""

    def verb(**_: Any) -> None:
        """Do nothing."""

    made = []
    for one in params:
        offer = _offering(one["values"], words)
        if one["opts"]:
            given: Any = typer.Option(*one["opts"], help=one["help"], autocompletion=offer)
        else:
            given = typer.Argument(autocompletion=offer)
        kind: Any = bool if one["flag"] else list[str] | None if one["many"] else str | None
        default: Any = Parameter.empty if one["required"] else False if one["flag"] else None
        made.append(Parameter(one["name"], Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, given]))
    verb.__signature__ = Signature(made)  # type: ignore[attr-defined]
    return verb


def _offering(values: str | Sequence[str] | None, words: Mapping[str, Offer]) -> Callable[..., Offer] | None:
    if values is None:
        return None
    if not isinstance(values, str):
        return lambda: [(one, "") for one in values]
    return lambda ctx, incomplete: _offered(values, words, ctx.obj, incomplete)


def _offered(what: str, words: Mapping[str, Offer], stack: str, incomplete: str) -> Offer:
    if what == "stacks":
        return [(name, "") for name in stack_names(ROOT)]
    if what == "groups":
        return _groups(stack)
    if what == "nodes":
        return _nodes(stack) or _groups(stack, every=True)
    if what == "keys":
        # Parts of a key once somebody is there; codes in the letters that are typed.
        return [
            (word.lower() if incomplete[:1] == "h" else word, meaning)
            for word, meaning in words[what]
            if incomplete.startswith(word.rpartition(".")[0])
        ]
    if what == "settings":
        # Keys, until the word is that of one key alone.
        cut = os.environ.get(_KEY, "")
        fitting = [(word, meaning) for word, meaning in words[what] if word.startswith(cut + incomplete)]
        known = {f"{word.partition('=')[0]}=": meaning for word, meaning in fitting}
        return [*known.items()] if len(known) > 1 else [(word.removeprefix(cut), meaning) for word, meaning in fitting]
    without = "ml." if what == "types" and not "ml.".startswith(incomplete[:3]) else ""
    return [(word.removeprefix(without), meaning) for word, meaning in words[what]]


def _groups(stack: str, every: bool = False) -> Offer:
    """The stack's worker groups by its file alone; with ``every`` also Slurm's controller."""
    with suppress(OSError, yaml.YAMLError, AttributeError, TypeError, KeyError):
        config = yaml.load((ROOT / f"Pulumi.{stack}.yaml").read_text(), yaml.CSafeLoader)["config"]
        workers = config.get("hyperpod:workers") or [{"name": "workers"}]
        heads = [("controller", "")] if every and config.get("hyperpod:orchestrator") != "eks" else []
        return [*heads, *((group["name"], group.get("instanceType", "")) for group in workers)]
    return []


def _nodes(stack: str) -> Offer:
    """The cluster's nodes; none where AWS does not say them in time."""
    if stack not in stack_names(ROOT):
        return []
    file = ROOT / FOLDER / stack / "nodes.json"
    with suppress(OSError, ValueError):
        if time.time() - file.stat().st_mtime < LASTING:
            return [(name, meaning) for name, meaning in json.loads(file.read_text())]
    found = ask(stack)
    _write(file, found)
    return found


def ask(stack: str) -> Offer:
    """The names of the cluster's nodes, by AWS, within ``PATIENCE`` seconds."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
            os.environ["AWS_MAX_ATTEMPTS"] = "1"
            from . import target
            from .cluster import nodes

            return [(one.name, f"{one.instance_type}, {one.status}") for one in nodes.list_nodes(target.load(stack))]
    except Exception:
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

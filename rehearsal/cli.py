"""The command line: ``hyperpod rehearse``, with its commands, of which ``deployment`` needs not be named."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import pairwise

from operations.failures import bad_input
from operations.project import stack_names
from operations.terminal.command_line import new_app

from .commands import CANNOT_RUN, ROOT, deployment, drill, eks, nodes

app = new_app(deployment.EPILOG)
app.command("deployment", epilog=deployment.EPILOG)(deployment.deployment_command)
app.command("nodes", epilog=CANNOT_RUN)(nodes.nodes_command)
app.command("eks", epilog=CANNOT_RUN)(eks.eks_command)
app.command("drill", epilog=drill.EPILOG)(drill.drill_command)


@app.callback()
def _introduction() -> None:
    """Rehearse a stack on this machine, without an AWS account.

    \b
      hyperpod rehearse dev              its deployment (or: deployment dev)
      hyperpod rehearse nodes dev        its nodes, with a real Slurm
      hyperpod rehearse eks eks-gpu      its objects, in a real Kubernetes API
      hyperpod rehearse drill dev        what happens when something breaks
    """


def arranged(words: Sequence[str]) -> list[str]:
    """The words with a command first, ``deployment`` where none is named, and each --then as one word."""
    names = [command.name for command in app.registered_commands if command.name]
    words = _written(words)
    if words and words[0] in {*names, "-h", "--help"}:
        return _folded(words)
    if words and (near := difflib.get_close_matches(words[0], names, n=1)) and words[0] not in stack_names(ROOT):
        raise bad_input(f'there is no stack "{words[0]}", nor is it a command', f"did you mean {near[0]}?")
    if later := next((word for word in words if word in names), None):
        raise bad_input(f"put the options of {later} after the word {later}")
    return _folded(["deployment", *words])


def _written(words: Sequence[str]) -> list[str]:
    """The words with --write FILE for --json FILE, which it once was; a dash is standard output."""
    written = [part for word in words for part in (["--json", word[7:]] if word.startswith("--json=") else [word])]
    for place, (word, file) in enumerate(pairwise(written)):
        if word == "--json" and (file == "-" or not file.startswith("-")) and file not in stack_names(ROOT):
            written[place : place + 2] = ["--json"] if file == "-" else ["--write", file]
            break
    return written


def _folded(words: Iterable[str]) -> list[str]:
    """Turn ``--then A B`` into ``--then "A\\0B"``: a Typer option takes a fixed number of words."""
    folded: list[str] = []
    changing = False
    for word in words:
        if changing and "=" in word and not word.startswith("-") and folded[-1] != "--then":
            folded[-1] += f"\0{word}"
        else:
            changing = word == "--then" or (changing and folded[-1] == "--then")
            folded.append(word)
    return folded

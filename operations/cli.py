"""The command line: its verbs, and the one place that turns a failure into a message and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from . import VERSION
from .commands.applied import accounts_command, governance_command, slurm_config_command
from .commands.assumptions import assumptions_command
from .commands.benchmark import benchmark_command
from .commands.changes import reboot_command, replace_command, scale_command, update_software_command
from .commands.costs import cost_command
from .commands.dashboards import dashboards_command
from .commands.deploy import deploy_command, destroy_command, preview_command
from .commands.diagnose import diagnose_command
from .commands.downloads import charts_command, containers_command
from .commands.errors import errors_command
from .commands.explain import explain_command
from .commands.health import deep_check_command, health_command
from .commands.image import image_command
from .commands.init import init_command
from .commands.jobs import job_app
from .commands.kubeconfig import kubeconfig_command
from .commands.nodes import connect_command, exec_command, nodes_command, ssh_config_command
from .commands.people import users_command
from .commands.quotas import quotas_command
from .commands.remove import remove_command
from .commands.run import run_command
from .commands.run_scripts import run_scripts_command
from .commands.slow_node import find_slow_node_command
from .commands.stacks import list_command
from .commands.status import status_command
from .commands.types import types_command
from .commands.usage import usage_command
from .commands.validate import validate_command
from .commands.watch import watch_command
from .failures import Exit, Failure
from .jobs.specs import JOBS
from .project import stack_names
from .target import ROOT
from .terminal import console
from .terminal.command_line import new_app, run
from .terminal.ending import run_to_its_end
from .terminal.output_options import MANNER, Output

EXIT_CODES = (
    "Exit codes: 0 success; 1 the operation failed or a check found a problem; 2 invalid input; "
    "3 undetermined: missing credentials, permissions, network or tools; 130 Ctrl-C."
)

# Under which heading --help lists each verb. Five are all that a first day needs.
VERBS: Mapping[str, Mapping[str, Callable[..., Any] | typer.Typer]] = {
    "The first day": {
        "init": init_command,
        "deploy": deploy_command,
        "status": status_command,
        "destroy": destroy_command,
    },
    "Before it costs anything": {
        "list": list_command,
        "types": types_command,
        "explain": explain_command,
        "cost": cost_command,
        "quotas": quotas_command,
        "preview": preview_command,
        "charts": charts_command,
        "containers": containers_command,
        "assumptions": assumptions_command,
    },
    "Nodes": {
        "nodes": nodes_command,
        "connect": connect_command,
        "exec": exec_command,
        "ssh-config": ssh_config_command,
        "scale": scale_command,
        "replace": replace_command,
        "reboot": reboot_command,
        "remove": remove_command,
        "update-software": update_software_command,
        "run-scripts": run_scripts_command,
    },
    "Checks": {
        "watch": watch_command,
        "validate": validate_command,
        "health": health_command,
        "errors": errors_command,
        "benchmark": benchmark_command,
        "find-slow-node": find_slow_node_command,
        "deep-check": deep_check_command,
        "diagnose": diagnose_command,
    },
    "Jobs and people": {
        "run": run_command,
        "image": image_command,
        "users": users_command,
        "usage": usage_command,
        "kubeconfig": kubeconfig_command,
        "job": job_app,
    },
    "Apply configuration without a deployment": {
        "accounts": accounts_command,
        "slurm-config": slurm_config_command,
        "governance": governance_command,
        "dashboards": dashboards_command,
    },
}
app = new_app(EXIT_CODES)
# How to read the words after a verb, where Typer alone would not take them as people write them.
_arranged: dict[str, Callable[[Sequence[str]], list[str]]] = {}


def add(
    panel: str,
    verb: str,
    does: Callable[..., Any] | typer.Typer,
    arranged: Callable[[Sequence[str]], list[str]] | None = None,
) -> None:
    """Add a verb under a heading. ``arranged`` puts the words after it as Typer takes them."""
    if isinstance(does, typer.Typer):
        app.add_typer(does, name=verb, rich_help_panel=panel)
    else:
        app.command(verb, rich_help_panel=panel)(does)
    if arranged:
        _arranged[verb] = arranged


for panel, verbs in VERBS.items():
    for verb, does in verbs.items():
        add(panel, verb, does)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hyperpod {VERSION}")
        raise typer.Exit


@app.callback()
def _introduction(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print this project's version.")
    ] = False,
    output: Annotated[Output | None, typer.Option("--output", "-o", help="The result's form, for every verb.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result: no progress, no notes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also name each call to AWS.")] = False,
) -> None:
    """Deploy a HyperPod stack and operate it. A stack is a file Pulumi.STACK.yaml.

    STACK may be left out where HYPERPOD_STACK names it. For a first deployment,
    in this order:

    \b
      hyperpod deploy dev --rehearse   on this machine, without an AWS account
      hyperpod cost dev                show what it costs
      hyperpod quotas dev              show which quotas to request from AWS
      hyperpod deploy dev              deploy to AWS
      hyperpod validate dev            check that it is as configured
      hyperpod connect dev             open a shell on the cluster
    """


def _stack(words: Sequence[str]) -> str:
    """The stack that a command line names, for use in hints."""
    named = [word.rpartition("=")[2] for word in words if word.startswith("--stack=") or not word.startswith("-")]
    known = (one for one in (*named, os.environ.get("HYPERPOD_STACK", "")) if one in stack_names(ROOT))
    return next(known, "STACK")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; a failure is one message, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words

    def complain(failure: Failure) -> None:
        console.complain(failure, "--json" in own or MANNER.output in ("json", "yaml"))

    return run_to_its_end(lambda: _run(words), complain, lambda: _stack(own))


def _as_now(words: list[str]) -> list[str]:
    """The words as verbs take them now. What was spelt otherwise in earlier releases goes on working."""
    verb, rest = words[:1], words[1:]
    if verb == ["job"] and rest and rest[0] in JOBS:
        own = [] if {"-s", "--stack"} & {*rest} else rest[1:]
        named = next((word for word in own if word in stack_names(ROOT)), "")
        others = [word for word in rest if word != named]
        return ["job", "print", *([named] if named else []), *others]
    if verb in (["benchmark"], ["find-slow-node"]):
        return [*verb, *(re.sub(r"^-n(?=\d*$)", "-N", word) for word in rest)]
    return words


def _run(words: list[str]) -> int:
    try:
        words = _as_now(MANNER.take(words))
        if words and words[0] in _arranged:
            words = [words[0], *_arranged[words[0]](words[1:])]
        return run(app, words or ["--help"], "hyperpod", stack_names(ROOT))
    except typer.Abort:
        # A question ends so by Ctrl-C and by Ctrl-D, on the question's own line.
        console.note("\nCancelled.", "yellow")
        return Exit.CANCELLED
    except KeyboardInterrupt:
        console.note("Cancelled.", "yellow")
        return Exit.CANCELLED

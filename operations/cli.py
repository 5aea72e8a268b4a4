"""The command line: its verbs, and the one place that turns a failure into a message and an exit code."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from . import VERSION
from .commands.apply import apply_command
from .commands.assumptions import assumptions_command
from .commands.benchmark import benchmark_command
from .commands.capacity import capacity_command
from .commands.changes import reboot_command, replace_command, scale_command, update_software_command
from .commands.costs import cost_command
from .commands.dashboards import dashboards_command
from .commands.deploy import deploy_command, destroy_command, preview_command
from .commands.diagnose import diagnose_command
from .commands.downloads import charts_command, containers_command
from .commands.errors import errors_command
from .commands.explain import explain_command
from .commands.health import deep_check_command, health_command
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
from .failures import Exit
from .project import stack_names
from .target import ROOT
from .terminal import console
from .terminal.command_line import add, new_app, new_group, run
from .terminal.ending import run_to_its_end
from .terminal.output_options import OPTIONS, Output, Quiet, Verbose

EXIT_CODES = (
    "Exit codes: 0 success; 1 the operation failed or a check found a problem; 2 invalid input; "
    "3 undetermined: missing credentials, permissions, network or tools; 130 Ctrl-C."
)

# Under which heading --help lists each verb. Five are all that a first day needs.
VERBS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "The first day": {
        "init": init_command,
        "deploy": deploy_command,
        "status": status_command,
        "destroy": destroy_command,
    },
    "Plan": {
        "list": list_command,
        "types": types_command,
        "explain": explain_command,
        "cost": cost_command,
        "quotas": quotas_command,
        "capacity": capacity_command,
        "preview": preview_command,
        "assumptions": assumptions_command,
    },
    "Run": {
        "apply": apply_command,
        "scale": scale_command,
        "run": run_command,
        "usage": usage_command,
        "kubeconfig": kubeconfig_command,
        "dashboards": dashboards_command,
    },
    "Check": {
        "watch": watch_command,
        "validate": validate_command,
        "benchmark": benchmark_command,
        "errors": errors_command,
        "diagnose": diagnose_command,
    },
}
NODE: Mapping[str, Callable[..., Any]] = {
    "list": nodes_command,
    "connect": connect_command,
    "exec": exec_command,
    "ssh-config": ssh_config_command,
    "users": users_command,
    "health": health_command,
    "deep-check": deep_check_command,
    "find-slow": find_slow_node_command,
    "reboot": reboot_command,
    "replace": replace_command,
    "remove": remove_command,
    "run-scripts": run_scripts_command,
    "update-software": update_software_command,
}
DOWNLOAD: Mapping[str, Callable[..., Any]] = {"charts": charts_command, "containers": containers_command}
app = new_app(EXIT_CODES)
node_app = new_group("List nodes, log in to them, check, repair and remove them.")
download_app = new_group("Download what a stack needs from others.")


def add_verb(panel: str, name: str, verb: Callable[..., Any] | typer.Typer) -> None:
    """Add a verb, or a group of verbs, under a heading."""
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name, rich_help_panel=panel)
    else:
        add(app, name, verb, rich_help_panel=panel)


for panel, verbs in VERBS.items():
    for name, verb in verbs.items():
        add_verb(panel, name, verb)
for group, verbs in ((node_app, NODE), (download_app, DOWNLOAD)):
    for name, verb in verbs.items():
        add(group, name, verb)
for name, group in {"node": node_app, "job": job_app, "download": download_app}.items():
    add_verb("Groups", name, group)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hyperpod {VERSION}")
        raise typer.Exit


@app.callback()
def _introduction(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print this project's version.")
    ] = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
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
      hyperpod node connect dev        open a shell on the cluster
    """
    OPTIONS.add(output, quiet, verbose)


def _stack(words: Sequence[str]) -> str:
    """The stack that a command line names, for use in hints."""
    own = words[: words.index("--")] if "--" in words else words
    known = (one for one in (*own, os.environ.get("HYPERPOD_STACK", "")) if one in stack_names(ROOT))
    return next(known, "STACK")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; a failure is one message, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_to_its_end(
        lambda: _run(words), lambda failure: console.complain(failure, OPTIONS.as_json), lambda: _stack(words)
    )


def _run(words: list[str]) -> int:
    try:
        return run(app, words, "hyperpod")
    except typer.Abort:
        # A question ends so by Ctrl-C and by Ctrl-D, on the question's own line.
        console.note("\nCancelled.", "yellow")
        return Exit.CANCELLED
    except KeyboardInterrupt:
        console.note("Cancelled.", "yellow")
        return Exit.CANCELLED

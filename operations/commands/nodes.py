"""The verbs ``list``, ``connect``, ``exec`` and ``ssh-config`` of ``node``."""

import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.tree import Tree

from .. import files, target
from ..cluster import network_places, sessions
from ..cluster import nodes as cluster_nodes
from ..failures import Failure, bad_input, described
from ..terminal import console
from ..terminal.command_line import printable

NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="A node's name as in `node list`, its group, host name or instance id.")
]
_MARK = "# HyperPod"
_AGAIN_SECONDS = 15


def nodes_command(
    stack: console.Stack,
    no_state: Annotated[
        bool, typer.Option("--no-state", help="Query only SageMaker, not Slurm or Kubernetes.")
    ] = False,
    topology: Annotated[
        bool, typer.Option("--topology", help="Draw where the nodes are in the network, as the scheduler knows it.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Ask again every 15 seconds, until Ctrl-C.")] = False,
    as_json: console.Json = False,
) -> None:
    """List nodes with health, address and scheduler state.

    Slurm is queried on the controller through Session Manager, Kubernetes
    through its API. If that fails, the other columns are still shown.

    \b
      hyperpod node list dev
      hyperpod node list dev --watch
      hyperpod node list eks-gpu --topology
      hyperpod node list slurm-gpu --no-state --json
    """
    if topology:
        if wrong := [option for option, given in (("--no-state", no_state), ("--watch", watch)) if given]:
            raise bad_input(f"--topology does not go with {' and '.join(wrong)}", "leave out one of them")
        _show_network(stack, as_json)
        return
    _show(stack, no_state, as_json)
    while watch:
        time.sleep(_AGAIN_SECONDS)
        if not as_json:
            console.say(f"\n{datetime.now():%H:%M:%S}", "dim")
        _show(stack, no_state, as_json)


def _show(stack: str, no_state: bool, as_json: bool) -> None:
    chosen = target.load(stack)
    found = cluster_nodes.list_nodes(chosen, to_come=True)
    if not no_state and found:
        try:
            found = cluster_nodes.with_states(chosen, found)
        except (Failure, ClientError, BotoCoreError) as error:
            failure = described(error, stack)
            console.note(f"state unknown: {failure.message}", "yellow")
            if failure.hint:
                console.note(f"  {failure.hint}")
    if as_json:
        console.emit(found)
        return
    scheduler = "Kubernetes" if chosen.on_eks else "Slurm"
    console.table(
        f"{chosen.cluster_name}: {chosen.cluster['ClusterStatus']}, {len(found)} nodes",
        ["node", "type", "health", scheduler, "address", "instance"],
        [(n.name, n.instance_type, n.status, n.state or "?", n.ip or n.hostname, n.instance_id) for n in found],
    )
    for group, number in cluster_nodes.awaited(chosen, found).items():
        console.prose(f"  nodes of {group} that have no instance yet: {number} (`hyperpod errors {stack}`)", "yellow")
    for node in found:
        for why in filter(None, (node.message, node.reason)):
            console.prose(f"  {node.name}: {why}", "yellow")


def _show_network(stack: str, as_json: bool) -> None:
    chosen = target.load(stack)
    network = network_places.look(chosen, cluster_nodes.list_nodes(chosen))
    if as_json:
        console.emit(network)
        return
    title = f"{chosen.cluster_name}: {sum(branch.size for branch in network.tree)} nodes in the network"
    drawn = Tree(title)
    _draw(drawn, network.tree)
    console.out().print(drawn, soft_wrap=False, markup=False, highlight=False)
    if network.unplaced:
        why = "lack HyperPod's labels of the network" if chosen.on_eks else "are not in Slurm's map of the network"
        console.prose(f"{', '.join(network.unplaced)}: these {why}", "yellow")


def _draw(tree: Tree, branches: Sequence[network_places.Branch]) -> None:
    for branch in branches:
        under = tree.add(f"{printable(branch.name)}  {branch.size} node{'s' if branch.size > 1 else ''}")
        _draw(under, branch.below)
        if branch.nodes:
            under.add(" ".join(branch.nodes))


def connect_command(
    stack: console.Stack,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE", help="A node's name, group, host name or instance id. Default: login, else controller."
        ),
    ] = None,
) -> None:
    """Open a shell on a node.

    By default on the login node, else the Slurm controller, else the first
    worker. Needs AWS's session-manager-plugin on this machine, but no open port.

    \b
      hyperpod node connect dev
      hyperpod node connect dev workers-2
    """
    chosen = target.load(stack)
    found = cluster_nodes.list_nodes(chosen)
    wanted = cluster_nodes.find(found, node) if node else cluster_nodes.head(found)
    console.note(f"{wanted.name} ({wanted.instance_type}, {wanted.instance_id})")
    raise typer.Exit(sessions.connect(chosen, wanted))


def exec_command(
    stack: console.Stack,
    node: NodeName,
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The command and its arguments, after --.")],
    timeout: Annotated[float, typer.Option("--timeout", help="Time limit in seconds.")] = 600,
    as_json: console.Json = False,
) -> None:
    """Run a command on a node and return its exit code.

    Standard output and standard error are merged. A single argument is run as
    a shell command line. Exit codes 2 and 3 can come from the command or from
    this verb; --json tells which.

    \b
      hyperpod node exec dev controller -- sinfo
      hyperpod node exec dev workers-1 -- nvidia-smi -L
      hyperpod node exec dev controller -- 'squeue | wc -l'
    """
    chosen = target.load(stack)
    wanted = cluster_nodes.find(cluster_nodes.list_nodes(chosen), node)
    line = command[0] if len(command) == 1 else shlex.join(command)
    ran = sessions.run_remote(chosen, wanted, line, timeout)
    if as_json:
        console.emit(
            {"node": wanted.name, "instance_id": wanted.instance_id, "exit_code": ran.code, "output": ran.output}
        )
    else:
        # What others have written, such as jobs' names, steers no terminal.
        typer.echo(printable(ran.output) if sys.stdout.isatty() else ran.output, nl=False)
    raise typer.Exit(ran.code)


def ssh_config_command(
    stack: console.Stack,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", "-w", metavar="FILE", help="Write to FILE. Only a file that this verb wrote is overwritten."
        ),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Print an SSH configuration for the nodes.

    ssh then connects through Session Manager, with the AWS CLI and its
    session-manager-plugin. Your public key must be on the nodes:
    hyperpod:sshPublicKey.

    \b
      hyperpod node ssh-config dev --write ~/.ssh/config.d/hyperpod-dev
      ssh hyperpod-dev-controller-1
    """
    chosen = target.load(stack)
    found = cluster_nodes.list_nodes(chosen)
    text = sessions.ssh_config(chosen, found)
    if not text:
        raise Failure("no node is running", f"hyperpod node list {stack}")
    hosts = [line.split()[1] for line in text.splitlines() if line.startswith("Host ")]
    if write is not None:
        _write(write.expanduser(), f"{_MARK} {stack}: written by hyperpod node ssh-config\n{text}")
        console.note(f"Written. Try: ssh {hosts[0]}    (~/.ssh/config needs the line: Include {write})")
    if as_json:
        console.emit({"hosts": hosts, "config": text})
    elif write is None:
        console.out().out(text.rstrip(), highlight=False)


def _write(path: Path, text: str) -> None:
    """Never overwrite a file that this verb did not write."""
    if path.exists() and not path.read_text().startswith(_MARK):
        raise bad_input(f"{path} already exists, and this command did not write it", "choose another file")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.write(path, text)

"""The verbs ``scale``, and ``replace``, ``reboot`` and ``update-software`` of ``node``."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from .. import target
from ..cluster import changes, scale
from ..cluster import nodes as cluster_nodes
from ..cluster.node import Node
from ..deployment import deploy, preflight
from ..failures import Exit, bad_input
from ..target import Target
from ..terminal import console
from .deploy import InstallCli, Rehearse, finish, open_engine, settle
from .deployed import name_what_comes
from .nodes import NodeName
from .what_if import show as show_what_if
from .what_if import what_if as what_if_of


def replace_command(
    stack: console.Stack, node: NodeName, yes: console.Yes = False, as_json: console.Json = False
) -> None:
    """Replace a node with a new instance.

    Shows what happens to the node's jobs and asks for confirmation. All data on
    the node's local disks is lost; /fsx stays. The new node can have the old
    one's names: with --yes, give the instance id.

    \b
      hyperpod node replace slurm-gpu workers-2
      hyperpod node replace slurm-gpu i-0123456789abcdef0 --yes
    """
    _change("replace", node, stack, changes.replace_nodes, yes, as_json)


def reboot_command(
    stack: console.Stack, node: NodeName, yes: console.Yes = False, as_json: console.Json = False
) -> None:
    """Reboot a node.

    Shows what happens to the node's jobs and asks for confirmation. The disks
    keep their data. With --yes, give the instance id.

    \b
      hyperpod node reboot slurm-gpu workers-2
    """
    _change("reboot", node, stack, changes.reboot_nodes, yes, as_json)


def _change(
    verb: changes.Verb,
    name: str,
    stack: str,
    act: Callable[[Target, Sequence[Node]], list[str]],
    yes: bool,
    as_json: bool,
) -> None:
    chosen = target.load(stack)
    nodes = cluster_nodes.list_nodes(chosen, to_come=True)
    # Elsewhere a group's name means its first node. That is too easy to misunderstand here.
    wanted = cluster_nodes.find([node for node in nodes if node.group != name], name)
    if yes and name != wanted.request_id:
        # The replacement has this name too: run twice, the command would replace a healthy node.
        raise bad_input(
            f"{name} may name another instance after a replacement", f"with --yes, give {wanted.request_id}"
        )
    plan = changes.plan(chosen, verb, nodes, [wanted])
    show(plan)
    console.confirm(f"{verb.capitalize()} {wanted.name} ({', '.join(cluster_nodes.own_names(wanted))})?", yes=yes)
    accepted = act(chosen, [wanted])
    if as_json:
        console.emit({"verb": verb, "accepted": accepted, "jobs": plan.jobs, "unknown": plan.unknown})
    else:
        console.prose(f"SageMaker accepted: {verb} {wanted.name}. Follow it: hyperpod node list {stack}", "green")


def update_software_command(
    stack: console.Stack,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="Only this instance group. Repeatable.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Number of nodes at a time, on EKS. Default: all at once.")
    ] = None,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Update nodes to AWS's newest HyperPod image.

    Every node gets a new root volume and runs the lifecycle scripts again.
    Shows what happens to the jobs and asks for confirmation.

    \b
      hyperpod node update-software slurm-gpu --group workers
      hyperpod node update-software eks-gpu --group workers --batch 2
    """
    chosen = target.load(stack)
    groups = list(group or [])
    changes.check_groups(chosen, groups)
    changes.check_batch(chosen, batch)
    groups = changes.updatable(chosen, groups)
    nodes = cluster_nodes.list_nodes(chosen)
    affected = [node for node in nodes if not groups or node.group in groups]
    plan = changes.plan(chosen, "update-software", nodes, affected)
    show(plan)
    console.confirm(f"Update the software of {len(affected)} nodes?", yes=yes)
    arn = changes.update_software(chosen, groups, batch)
    if as_json:
        console.emit({"verb": "update-software", "cluster": arn, "jobs": plan.jobs, "unknown": plan.unknown})
    else:
        console.prose(f"SageMaker is updating {chosen.cluster_name}. Follow it: hyperpod node list {stack}", "green")


def scale_command(
    stack: console.Stack,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A worker group.")],
    count: Annotated[int, typer.Argument(metavar="N", min=0, help="The new number of nodes.")],
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Change nothing: show the limits, quotas and costs of that size.")
    ] = False,
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Remove no node while a job runs on the group.")] = False,
    yes: console.Yes = False,
    rehearse: Rehearse = False,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Change the number of nodes in a worker group.

    Changes the count in Pulumi.STACK.yaml and deploys. Refuses if the preview
    would delete or replace the file system, the cluster or the lifecycle
    bucket. If the number shrinks, AWS chooses the nodes to remove, and their
    jobs end.

    --if-idle is for a timer: where jobs run on the group, or nobody can tell,
    the command changes nothing and exits with 1.

    --what-if names the published limits that a growing group meets, in their
    order, and how many nodes each is enough for. It needs no account, and
    exits with 1 if N nodes are over one of them.

    \b
      hyperpod scale slurm-gpu workers 8
      hyperpod scale slurm-gpu workers 1000 --what-if
      hyperpod scale slurm-gpu workers 0 --if-idle --yes
      hyperpod scale dev workers 4 --rehearse
    """
    chosen = target.load(stack)
    if what_if:
        found = what_if_of(chosen, group, count)
        if as_json:
            console.emit(found.as_json())
        else:
            show_what_if(found)
        raise typer.Exit(Exit.FAILED if found.exceeded else Exit.GOOD)
    wanted = scale.scaled(chosen, group, count)
    if wanted.before == wanted.after:
        console.note(f"{group} already has {count} nodes in the configuration.")
    if not rehearse:
        preflight.require_plans(wanted.target)
        if if_idle and wanted.after < wanted.before:
            changes.require_idle(_fewer(chosen, group))
    with open_engine(chosen, rehearse, None, create=False, install_cli=install_cli) as (engine, _):
        if rehearse:
            deploy.run(chosen, engine, "up")
        settle(chosen, engine, as_json, rehearse=rehearse)
        engine.configure(wanted.values)
        try:
            planned = deploy.run(chosen, engine, "preview")
            if not planned.succeeded:
                finish(chosen, planned, as_json, rehearse=rehearse)
            deploy.require_kept(planned)
            console.note(
                f"{group}: {wanted.before} to {wanted.after} nodes, {wanted.money}. "
                f"Changes: {', '.join(planned.changes) or 'none'}."
            )
            if not rehearse:
                if wanted.after < wanted.before:
                    show(_fewer(chosen, group))
                console.confirm("Deploy?", yes=yes)
        except BaseException:
            engine.restore()
            raise
        report = deploy.run(chosen, engine, "up", total=len(planned.changes))
        if report.succeeded and not rehearse:
            name_what_comes(chosen, report)
        finish(chosen, report, as_json, rehearse=rehearse)


def _fewer(chosen: target.Target, group: str) -> changes.Plan:
    """What fewer nodes do to the jobs on the group."""
    nodes = cluster_nodes.list_nodes(chosen)
    return changes.plan(chosen, "scale", nodes, [node for node in nodes if node.group == group])


def show(plan: changes.Plan) -> None:
    """Show what will happen, on standard error, where the confirmation follows."""
    for effect in plan.effects:
        console.note(f"  {effect}", "")
    if plan.unknown:
        console.note(f"  jobs unknown: {plan.unknown}", "yellow")
    elif not plan.jobs:
        console.note("  no job runs there", "")
    else:
        few = " may be affected: AWS chooses the nodes" if plan.verb == "scale" else " run there"
        console.note(f"  {len(plan.jobs)} jobs{few}", "yellow")
    for job in plan.jobs:
        console.note(f"    {job.id}  {job.name}  {job.user}: {job.survives}", "yellow")

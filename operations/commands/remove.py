"""The verb ``node remove``."""

import os
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape

from .. import target
from ..aws import SERVED
from ..cluster import changes, draining, remove
from ..cluster import nodes as cluster_nodes
from ..failures import Exit, Failure, described
from ..terminal import console
from .changes import show
from .deploy import InstallCli, open_engine, settle


def remove_command(
    stack: console.Stack,
    node: Annotated[
        list[str], typer.Argument(metavar="NODE...", help="Workers, by the names of `node list`, host names or ids.")
    ],
    now: Annotated[bool, typer.Option("--now", help="Do not wait for jobs: they end with their nodes.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the jobs on the nodes to end.")
    ] = 86400.0,
    yes: console.Yes = False,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Remove the workers that you name.

    `scale` lets AWS choose which nodes go; here you do. Shows the jobs on
    them, asks, and drains them: with Slurm their jobs end first, with EKS
    their pods are evicted, as far as disruption budgets let them. Then the
    instances are terminated, and the counts in Pulumi.STACK.yaml follow, so
    that no deployment brings them back. Exits with 1 where AWS refuses a node.

    \b
      hyperpod node remove slurm-gpu workers-2 workers-5
      hyperpod node remove slurm-gpu i-0123456789abcdef0 --now --yes
    """
    chosen = target.load(stack)
    nodes = cluster_nodes.list_nodes(chosen, to_come=True)
    wanted = remove.chosen(chosen, nodes, node, yes=yes)
    sizes = remove.shrunk(chosen, wanted)
    plan = changes.plan(chosen, "remove", nodes, wanted)
    if not now and not chosen.on_eks:
        plan.jobs = [replace(job, survives="ends first; its node waits for it") for job in plan.jobs]
    with open_engine(chosen, False, None, create=False, install_cli=install_cli) as (engine, _):
        settle(chosen, engine, as_json, rehearse=False)
        for one in wanted:
            console.note(f"{one.name}: {one.instance_type}, {', '.join(cluster_nodes.own_names(one))}")
        show(plan)
        for size in sizes:
            console.note(f"{size.group}: {size.before} to {size.after} nodes, {size.money}")
        if now:
            console.note("--now: nobody waits for the jobs; they end with their nodes.", "yellow")
        console.confirm(f"Remove {len(wanted)} nodes?", yes=yes)
        with console.progress().status("") as status:

            def say(said: str) -> None:
                status.update(escape(said))

            hint = "a longer --timeout, or --now: the jobs end with their nodes"
            patience = -1.0 if now else timeout
            there = [one for one in wanted if one.instance_id]
            drain = partial(draining.drain, chosen, nodes, say=say, reason=remove.REASON, patience=patience, hint=hint)
            try:
                take_back = drain(there)
            except (Failure, ClientError, BotoCoreError) as error:
                # In a rehearsal nothing runs on the nodes, and so no job.
                if not now and SERVED not in os.environ:
                    raise
                console.note(f"not drained: {described(error, stack).message}", "yellow")
                take_back = drain([])
            engine.configure({key: value for size in sizes for key, value in size.values.items()})
            try:
                done = remove.delete(chosen, wanted)
            except BaseException:
                engine.restore()
                take_back(wanted)
                raise
            if done.refused:
                engine.restore()
                take_back([one for one in wanted if one not in done.accepted])
                sizes = remove.shrunk(chosen, done.accepted)
                engine.configure({key: value for size in sizes for key, value in size.values.items()})
            remove.wait(chosen, done.accepted, say)
    if again := remove.not_lowered(chosen, sizes):
        console.note(f"SageMaker still wants more nodes in {', '.join(again)}: hyperpod deploy {stack}", "yellow")
    if as_json:
        counts = {size.group: size.after for size in sizes}
        removed = [one.request_id for one in done.accepted]
        console.emit({"removed": removed, "refused": done.refused, "counts": counts, "jobs": plan.jobs})
    else:
        for name, why in done.refused.items():
            console.prose(f"SageMaker refused {name}: {why}", "red")
        if done.accepted:
            counts_now = ", ".join(f"{size.group} {size.after}" for size in sizes)
            console.prose(f"Removed {draining.named(done.accepted)}. Pulumi.{stack}.yaml has {counts_now}.", "green")
    raise typer.Exit(Exit.FAILED if done.refused else Exit.GOOD)

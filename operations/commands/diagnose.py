"""The verb ``diagnose``."""

from pathlib import Path
from typing import Annotated

import typer

from .. import target
from ..cluster import device_tests, diagnose
from ..cluster import nodes as cluster_nodes
from ..failures import Exit, bad_input
from ..terminal import console


def diagnose_command(
    stack: console.Stack,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE]...", help="Names, host names or instance ids. Default: controller and ill nodes."
        ),
    ] = None,
    level: Annotated[
        int | None, typer.Option("--level", min=1, max=4, help="Also test the GPUs of NODE with dcgmi diag -r LEVEL.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", "-w", metavar="FILE", help="The archive. Default: in .operations/STACK.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Collect what support would ask for, in one archive.

    Versions, devices, topology, counters, logs and the scheduler's state of
    nodes, and AWS's description of the cluster. Changes nothing. Secrets that
    can be recognized are removed; read the archive before you send it. --level
    needs idle GPUs: 1 takes seconds, 2 minutes, 3 half an hour, 4 up to two
    hours. On EKS it is a pod of NVIDIA's DCGM image with all of the node's
    GPUs. What DCGM only warns of is no failure, as in the nodes' own checks.
    Exits with 1 if that test failed, with 3 if a node or dcgmi did not answer.

    \b
      hyperpod diagnose slurm-gpu
      hyperpod diagnose slurm-gpu workers-2 --level 2
      hyperpod diagnose eks-gpu i-0123456789abcdef0 --write node.tar.gz
      hyperpod diagnose eks-gpu workers-1 --level 1
    """
    chosen = target.load(stack)
    if level is not None and not nodes:
        raise bad_input("--level without NODE", f"hyperpod diagnose {stack} NODE --level {level}")
    tests = []
    if level is not None:
        found = cluster_nodes.list_nodes(chosen)
        for node in [cluster_nodes.find(found, name) for name in nodes or ()]:
            limit = device_tests.LEVELS.get(level, 0) // 60
            with console.progress().status(f"dcgmi diag -r {level} on {node.name}, at most {limit} minutes ..."):
                tests.append(device_tests.run(chosen, found, node, level))
    texts = {f"{test.node}/dcgm-level-{test.level}.txt": test.output for test in tests}
    with console.progress().status(f"Asking the nodes of {chosen.cluster_name} ...") as status:
        done = diagnose.collect(
            chosen, nodes or (), write, texts, lambda name: status.update(f"{name} has answered ...")
        )
    if as_json:
        document = {**done.__dict__, "tests": [{**test.__dict__, "output": None} for test in tests]}
        console.emit(document)
    else:
        for test in tests:
            console.prose(f"{test.result} {test.node}: {test.detail}", console.MARKS[test.result])
        for failure in done.failures:
            console.prose(f"  could not ask {failure}", "yellow")
        if done.left_out and not nodes:
            console.prose(f"not asked: {', '.join(done.left_out)}", "dim")
        size = done.archive.stat().st_size / 1024
        console.say(f"{done.archive}: {len(done.files)} files, {size:.0f} KiB", "bold")
        console.say(f"  read it before you send it: tar -tzf {done.archive}")
    codes = {test.code for test in tests} | ({Exit.CANNOT_KNOW} if done.failures else set())
    raise typer.Exit(next((code for code in (Exit.FAILED, Exit.CANNOT_KNOW) if code in codes), Exit.GOOD))

"""The same command on many nodes: a session with each, or one with the Slurm controller, which reaches the workers."""

import base64
import gzip
import secrets
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import BotoCoreError, ClientError

from ..failures import Failure, described
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions
from .node import Node
from .sessions import Remote

# srun's manual, --no-allocate: root's tasks need no job, so they also reach nodes that are allocated or drained. A node
# that does not answer takes nothing from the others.
_SRUN = "--no-allocate --no-kill --kill-on-bad-exit=0 --mpi=none --input=none --quiet --chdir=/"
_NODES = "sinfo --noheader --responding --Node --format=%N | sort -u | paste -sd,"
# Short lines that name their node: srun mixes the nodes' lines, but does not cut them. Nothing that the command prints
# can look like one.
_ON_NODE = """set -o pipefail
( {command} ) 2>&1 | gzip | base64 | sed "s/^/{mark} $SLURMD_NODENAME /"
echo "{mark} $SLURMD_NODENAME end ${{PIPESTATUS[0]}}"
"""
# Seconds until srun gives up a node that does not answer, twice slurm.conf(5)'s default of MessageTimeout.
_LOST_SECONDS = 20


def answers(
    target: Target, nodes: Sequence[Node], wanted: Sequence[Node], command: str, seconds: float
) -> list[Remote | Failure]:
    """What each wanted one of the nodes answers, in their order, or why it cannot be asked.

    With Slurm more nodes than Session Manager may open sessions with at once are asked through the controller. Those
    that Slurm does not reach get a session of their own.
    """
    many = len(wanted) > sessions.AT_ONCE and not target.on_eks
    found = _through_slurm(target, nodes, command, seconds) if many else {}
    with ThreadPoolExecutor(sessions.AT_ONCE) as pool:
        return list(pool.map(lambda node: found.get(node.hostname) or _one(target, node, command, seconds), wanted))


def _one(target: Target, node: Node, command: str, seconds: float) -> Remote | Failure:
    try:
        return sessions.run_remote(target, node, command, seconds)
    except (Failure, ClientError, BotoCoreError) as error:
        return described(error, target.stack)


def _through_slurm(target: Target, nodes: Sequence[Node], command: str, seconds: float) -> dict[str, Remote]:
    """The answers by host name, without those of nodes that Slurm does not reach."""
    mark = secrets.token_hex(8)
    script = f'sudo -n timeout {seconds + _LOST_SECONDS:.0f} "$(command -v srun)" {_SRUN} --nodelist="$({_NODES})"'
    script += f" bash -c {shlex.quote(_ON_NODE.format(command=command, mark=mark))}"
    try:
        head = cluster_nodes.controller(nodes)
        lines = sessions.run_remote(target, head, script, seconds + 2 * _LOST_SECONDS).output.splitlines()
    except (Failure, ClientError, BotoCoreError):
        return {}
    return _read(line.removeprefix(f"{mark} ") for line in lines if line.startswith(f"{mark} "))


def _read(lines: Iterable[str]) -> dict[str, Remote]:
    """The answers in the lines of ``NAME TEXT`` and, at a node's end, ``NAME end CODE``."""
    texts: dict[str, str] = defaultdict(str)
    found = {}
    for line in lines:
        name, text, *code = line.split()
        if not code:
            texts[name] += text
        else:
            output = gzip.decompress(base64.b64decode(texts[name])).decode(errors="replace")
            found[name] = Remote(code=int(code[0]), output=output)
    return found

"""Slurm's accounts and limits on the running controller, as the stack's configuration has them."""

from __future__ import annotations

import base64
import dataclasses
import json
import shlex
import zlib

from components.nodes import provisioning

from ..failures import Failure, bad_input
from ..outcome import Outcome
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions

_UNPACK = "python3 -c 'import base64, sys, zlib; print(zlib.decompress(base64.b64decode(sys.argv[1])).decode())'"
_APPLY = "sudo -n /opt/hyperpod/bin/hyperpod-slurm-accounts"


def apply(target: Target, dry_run: bool) -> Outcome:
    """Apply them, except what people have added or the configuration no longer names: notes say which is kept.

    Raises Failure where the controller refuses.
    """
    wanted = None if target.on_eks else provisioning.accounting(target.config)
    if wanted is None:
        raise bad_input(
            f"{target.stack} has no accounts of Slurm's",
            "set hyperpod:slurm.accounting (docs/slurm-teams.md, Accounting)",
        )
    text = json.dumps(dataclasses.asdict(wanted)).encode()
    packed = base64.b64encode(zlib.compress(text, 9)).decode()
    head = cluster_nodes.controller(cluster_nodes.list_nodes(target))
    command = f"{_APPLY} --dry-run" if dry_run else _APPLY
    ran = sessions.run_remote(target, head, f"{_UNPACK} {shlex.quote(packed)} | {command}", timeout=300)
    lines = [line for line in ran.output.splitlines() if line.strip()]
    if ran.code != 0:
        raise Failure(
            f"{head.name} did not apply the accounts: {lines[-1] if lines else ran.code}",
            f"if its scripts ran before slurm.accounting was set: hyperpod node run-scripts {target.stack} controller",
        )
    changes = [line.partition(": ")[2] for line in lines if line.startswith(("done: ", "would do: "))]
    return Outcome(changes=changes, notes=[line for line in lines if line.startswith("kept: ")])

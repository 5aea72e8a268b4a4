"""Slurm's accounts and limits on the running controller, as the stack's configuration has them."""

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
# A program from before --dry-run ignores its options and applies what it reads; of nothing it says that it is no JSON.
_TOO_OLD = "its scripts are older than --dry-run"
_KNOWS_DRY_RUN = f"{{ {_APPLY} --help < /dev/null | grep -q -e --dry-run || {{ echo '{_TOO_OLD}'; exit 1; }}; }}"


def apply(target: Target, dry_run: bool) -> Outcome:
    """Apply them, except what people have added or the configuration no longer names: notes say which is kept.

    Raises Failure where the controller refuses.
    """
    wanted = None if target.on_eks else provisioning.accounting(target.config)
    if wanted is None:
        raise bad_input(
            f"{target.stack} has no Slurm accounts",
            "set hyperpod:slurm.accounting (docs/slurm-teams.md, Accounting)",
        )
    text = json.dumps(dataclasses.asdict(wanted)).encode()
    packed = base64.b64encode(zlib.compress(text, 9)).decode()
    head = cluster_nodes.controller(cluster_nodes.list_nodes(target))
    command = f"{_UNPACK} {shlex.quote(packed)} | {_APPLY}"
    ran = sessions.run_remote(
        target, head, f"{_KNOWS_DRY_RUN} && {command} --dry-run" if dry_run else command, timeout=300
    )
    lines = [line for line in ran.output.splitlines() if line.strip()]
    if ran.code != 0 and _TOO_OLD in lines:
        raise Failure(
            f"{head.name} cannot say what the accounts would change: {_TOO_OLD}",
            f"hyperpod node run-scripts {target.stack} controller",
        )
    if ran.code != 0:
        raise Failure(
            f"{head.name} did not apply the accounts: {lines[-1] if lines else ran.code}",
            f"if its scripts ran before slurm.accounting was set: hyperpod node run-scripts {target.stack} controller",
        )
    changes = [line.partition(": ")[2] for line in lines if line.startswith(("done: ", "would do: "))]
    return Outcome(changes=changes, notes=[line for line in lines if line.startswith("kept: ")])

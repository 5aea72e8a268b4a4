"""The stack's own lines of slurm.conf on the running controller, which tries them first."""

import json
import shlex

from hyperpod_node.slurm import extra_conf as on_node

from components.nodes import provisioning
from components.nodes.lifecycle_bucket import PREFIX
from components.slurm import conf_folder

from ..failures import Failure, bad_input
from ..outcome import Outcome
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions

COMMAND = "/opt/hyperpod/bin/hyperpod-slurm-config"
_SECONDS = 300.0


def apply(target: Target, dry_run: bool) -> Outcome:
    """Have the controller take the files from the lifecycle bucket. Raises Failure where it refuses, with the line."""
    if target.on_eks:
        raise bad_input(f"{target.stack} has no Slurm", "leave hyperpod:slurm out with orchestrator eks")
    if wrong := conf_folder.problems({"extraConf": target.config.settings.slurm.extra_conf}):
        raise bad_input("; ".join(f"{problem.what} ({problem.fix})" for problem in wrong), "correct the lines")
    head = cluster_nodes.controller(cluster_nodes.list_nodes(target))
    wanted = on_node.parse(provisioning.conf_text(target.config, target.names), "the configuration").files
    uri = f"s3://{target.names.bucket}/{PREFIX}/{provisioning.CONF_FILE}"
    words = [*([uri, "--region", target.aws.region] if wanted else []), *(["--dry-run"] if dry_run else [])]
    ran = sessions.run_remote(target, head, f"sudo -n {shlex.join([COMMAND, *words])}", timeout=_SECONDS)
    last = (ran.output.strip().splitlines() or ["no output"])[-1]
    if ran.code:
        old = any(said in ran.output for said in (f"{COMMAND}: command not found", "unrecognized arguments"))
        raise Failure(
            f"{head.name} changed nothing: {'its scripts are older than this verb' if old else last}",
            f"hyperpod node run-scripts {target.stack} controller" if old else "correct the line and deploy again",
        )
    found = json.loads(last)
    if found["digest"] != on_node.digest(wanted):
        raise Failure(
            f"the lifecycle bucket's lines differ from those of Pulumi.{target.stack}.yaml",
            f"hyperpod deploy {target.stack}, then hyperpod apply {target.stack}",
        )
    files = ", ".join(found["files"]) or "no file of its own"
    return Outcome(changes=[f"{head.name} includes {files}"] if found["changed"] else [])

"""The queue on the shared file system, where another controller finds it.

Slurm keeps the queue in StateSaveLocation. It becomes a link to the shared file system, as AWS's own setup of several
controllers does it (awsome-distributed-training, multi_headnode_setup/headnode_setup.sh): HyperPod's agent may write
slurm.conf anew, and the link stays. It is no mount: while the file system is away a link leads nowhere and slurmctld
ends, where the folder below a mount would give it an empty queue.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from . import slurm_controllers, units
from .errors import StepError
from .model import Node
from .shared import make_once
from .slurm_conf import SlurmConf

# As long as the first controller may need more than others for its file system, its agent and its scripts.
FIRST_SECONDS = 120.0


def folder(node: Node, conf: SlurmConf) -> str:
    """Where the queue is, or will be."""
    if node.parameters.shared_queue:
        return f"{node.shared}/slurm/state"
    return conf.get("StateSaveLocation", "/var/spool")


def keep_shared(node: Node, conf: SlurmConf) -> bool:
    """Make StateSaveLocation a link to the shared file system. True if workers know another controller.

    Killed anywhere and run again, it ends the same.
    """
    host, where, user = node.host, conf.get("StateSaveLocation", slurm_controllers.STATE), conf.get("SlurmUser", "root")
    target, local = folder(node, conf), host.path(where)
    own = local.is_dir() and not local.is_symlink()
    running = own and units.active(host, "slurmctld")
    if running:
        # The queue may not change while it is copied.
        host.run("systemctl", "stop", "slurmctld", check=False, timeout=120)

    def fill(made: Path) -> None:
        if own:
            # The queue of a controller that ran before it was shared.
            shutil.copytree(str(local), str(made), dirs_exist_ok=True)
            host.run("chown", "-R", f"{user}:", str(made))

    make_once(node, "state", fill, f"{node.shared}/slurm")
    # Job scripts and their environment are in it.
    host.secure(target, 0o700, user)
    if own:
        _set_aside(local)
    host.link(where, target)
    known = host.read(_record(node))
    return running or known not in (None, node.identity.instance.address)


def await_first(node: Node) -> None:
    """On a cluster's first boot let the first controller begin the queue.

    Where several slurmctlds start at once with an empty one, each waits half a minute for another heartbeat (seen with
    24.11: "Waiting for heartbeat file to exist"). If the first one does not come, this one goes on without it.
    """
    host, own = node.host, node.identity.instance
    first = slurm_controllers.ordered(node.identity.instances, node.parameters.groups)[0]
    beats = host.path(f"{node.shared}/slurm/state/heartbeat").exists
    if own.instance_id != first.instance_id and not beats():
        with contextlib.suppress(StepError):
            host.poll(f"{first.name} began no queue", beats, FIRST_SECONDS, most=0.25)


def workers_know(node: Node) -> None:
    """From here on they find this controller: by their configuration, and when they boot (slurm/conf-server.sh)."""
    host, own = node.host, node.identity.instance
    claim = {"instance_id": own.instance_id, "hostname": host.hostname(), "address": own.address}
    host.write(f"{node.shared}/slurm/controller.json", json.dumps(claim, sort_keys=True) + "\n")
    host.write(_record(node), own.address)


def _record(node: Node) -> str:
    """The address of the controller that has this one's name in HyperPod, which a replacement keeps."""
    return f"{node.shared}/slurm/{node.identity.instance.name}.address"


def _set_aside(local: Path) -> None:
    """Make room for the link. What was there is kept beside it, though nothing reads it any more."""
    if any(local.iterdir()):
        aside = local.with_name(f"{local.name}.local")
        shutil.rmtree(str(aside), ignore_errors=True)
        # Its disk may be one of its own.
        shutil.move(str(local), str(aside))
    else:
        local.rmdir()

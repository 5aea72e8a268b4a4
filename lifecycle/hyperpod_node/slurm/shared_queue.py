"""The queue on the shared file system, where the next controller finds it.

Slurm keeps the queue in StateSaveLocation. It becomes a link to the shared file system, as in AWS's own setup of
several controllers (awsome-distributed-training, multi_headnode_setup/headnode_setup.sh): HyperPod's agent may rewrite
slurm.conf, and the link stays. It is no mount: while the file system is away a link leads nowhere and slurmctld ends,
but the folder below a mount would give it an empty queue.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ..facts.model import Node
from ..host import units
from ..host.make_once import make_once
from .conf import SlurmConf

# Where slurm.conf names no folder for the queue: slurm.conf(5)'s default is /var/spool itself, not Slurm's alone.
STATE = "/var/spool/slurmctld"


def folder(node: Node, conf: SlurmConf) -> str:
    """Return the folder of the queue, now or later."""
    if node.parameters.shared_queue:
        return f"{node.shared}/slurm/state"
    return conf.get("StateSaveLocation", "/var/spool")


def keep_shared(node: Node, conf: SlurmConf) -> bool:
    """Make StateSaveLocation a link to the shared file system. Return True if workers know another controller.

    If it is killed anywhere and run again, it ends the same.
    """
    host, where, user = node.host, conf.get("StateSaveLocation", STATE), conf.get("SlurmUser", "root")
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

    make_once(node.host, f"{node.shared}/slurm/state", fill)
    # Job scripts and their environment are in it.
    host.secure(target, 0o700, user)
    if own:
        _set_aside(local)
    host.link(where, target)
    known = host.read(_record(node))
    return running or known not in (None, node.identity.instance.address)


def workers_know(node: Node) -> None:
    """Record that workers use this controller's address from now on."""
    node.host.write(_record(node), node.identity.instance.address)


def _record(node: Node) -> str:
    """Return the address of the controller that has this one's name in HyperPod, which a replacement keeps."""
    return f"{node.shared}/slurm/{node.identity.instance.name}.address"


def _set_aside(local: Path) -> None:
    """Make room for the link. The previous contents stay next to it, though nothing reads them any more."""
    if any(local.iterdir()):
        aside = local.with_name(f"{local.name}.local")
        shutil.rmtree(str(aside), ignore_errors=True)
        # It may be on a separate disk.
        shutil.move(str(local), str(aside))
    else:
        local.rmdir()

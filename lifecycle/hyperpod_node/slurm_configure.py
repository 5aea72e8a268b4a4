"""Our part of the controller's Slurm configuration: rendered, and read by one line of slurm.conf.

Also called by the hyperpod-requeue service, since HyperPod's agent rewrites slurm.conf when a node is replaced.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Dict, List, Mapping, Optional, Sequence

from . import slurm_conf, slurm_topology
from .errors import StepError
from .host import Host
from .model import Group, Instance


def configure(host: Host, groups: Mapping[str, Group], instances: Sequence[Instance], shared: str) -> bool:
    """Write hyperpod.conf, gres.conf and the include line, where they differ. True when something changed."""
    etc, bin_folder = host.settings.slurm_etc, host.settings.install_folder + "/bin"
    name = f"{etc}/slurm.conf"
    text = host.read(name)
    if text is None:
        raise StepError(f"{name} is missing")
    conf = slurm_conf.parse(_whole(host, text, without=slurm_conf.INCLUDE))
    by_node = slurm_conf.groups_of_nodes(conf, instances, recorded(host, shared), groups)
    changed = False
    gres = host.read(f"{etc}/gres.conf")
    has_gres = any(slurm_conf.gres(group) for group in groups.values() if group.role == "worker")
    # One that somebody else wrote, HyperPod's agent or a person, knows better.
    if has_gres and (gres is None or gres.startswith(slurm_conf.HEADER)):
        changed |= host.write(f"{etc}/gres.conf", slurm_conf.render_gres(by_node or _workers(groups)))
    changed |= host.write(f"{etc}/{slurm_conf.INCLUDE}", slurm_conf.render(conf, groups, bin_folder))
    settled, mapped = slurm_topology.settle(host, text)
    # Last: what it includes is complete by now.
    wanted = slurm_conf.with_include(slurm_conf.with_gres(settled, by_node))
    if wanted != text:
        changed |= host.write(name, wanted, mode=host.path(name).stat().st_mode & 0o777, owner=host.owner(name))
    return changed or mapped


def publish(host: Host, shared: str) -> None:
    """A copy for login nodes, which have no slurmd to fetch it: slurm.conf with all that it includes.

    Passwords are the daemons' alone. So is the topology: clients that have no map leave it to the controller.
    """
    etc = host.settings.slurm_etc
    whole = _whole(host, host.read(f"{etc}/slurm.conf") or "")
    host.write(f"{shared}/slurm/slurm.conf", re.sub(r"^\s*\w*Pass\s*=.*\n?", "", whole, flags=re.M | re.I))


def _whole(host: Host, text: str, without: str = "") -> str:
    """slurm.conf with what it includes, one file apart."""

    def read(name: str) -> Optional[str]:
        # Relative names are beside slurm.conf.
        return None if name == without else host.read(str(PurePosixPath(host.settings.slurm_etc) / name))

    return slurm_conf.inline(text, read)


def sources(host: Host, shared: str) -> List[str]:
    """What a configuration is made from, as far as it changes while a cluster lives."""
    etc = host.settings.slurm_etc
    return [f"{etc}/slurm.conf", *(f"{etc}/{name}" for name in slurm_topology.MAPS), f"{shared}/slurm/nodes"]


def record(host: Host, shared: str, group: str) -> None:
    """A worker says which group it is of: its address may be newer than the controller's list."""
    host.folder(f"{shared}/slurm/nodes")
    host.write(f"{shared}/slurm/nodes/{host.hostname()}", group + "\n")


def recorded(host: Host, shared: str) -> Dict[str, str]:
    """What workers said."""
    folder = host.path(f"{shared}/slurm/nodes")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {name: (host.read(f"{shared}/slurm/nodes/{name}") or "").strip() for name in names if name[0] != "."}


def _workers(groups: Mapping[str, Group]) -> Dict[str, Group]:
    """Before slurm.conf has any node: all workers, provided that they are alike."""
    workers = [group for group in groups.values() if group.role == "worker"]
    return {"*": workers[0]} if len({slurm_conf.gres(group) for group in workers}) == 1 else {}

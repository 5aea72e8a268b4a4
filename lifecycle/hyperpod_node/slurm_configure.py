"""Our part of the controller's Slurm configuration: rendered, and read by one line of slurm.conf.

Also called by the hyperpod-requeue service, since HyperPod's agent rewrites slurm.conf when a node is replaced.
"""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

from . import slurm_conf
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
    conf = slurm_conf.parse(text)
    by_node = slurm_conf.groups_of_nodes(conf, instances, recorded(host, shared), groups)
    changed = False
    gres = host.read(f"{etc}/gres.conf")
    has_gres = any(slurm_conf.gres(group) for group in groups.values() if group.role == "worker")
    # One that somebody else wrote, HyperPod's agent or a person, knows better.
    if has_gres and (gres is None or gres.startswith(slurm_conf.HEADER)):
        changed |= host.write(f"{etc}/gres.conf", slurm_conf.render_gres(by_node or _workers(groups)))
    changed |= host.write(f"{etc}/{slurm_conf.INCLUDE}", slurm_conf.render(conf, groups, bin_folder))
    # Last: what it includes is complete by now.
    wanted = slurm_conf.with_include(slurm_conf.with_gres(text, by_node))
    if wanted != text:
        changed |= host.write(name, wanted, mode=host.path(name).stat().st_mode & 0o777, owner=host.owner(name))
    return changed


def publish(host: Host, shared: str) -> None:
    """Copies for login nodes, which have no slurmd to fetch them."""
    for name in ("slurm.conf", slurm_conf.INCLUDE):
        text = host.read(f"{host.settings.slurm_etc}/{name}")
        if text is not None:
            host.write(f"{shared}/slurm/{name}", text)


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

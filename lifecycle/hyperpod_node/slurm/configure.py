"""Renders our part of the controller's Slurm configuration, which one line of slurm.conf includes.

Also called by the hyperpod-requeue service and, as hyperpod-configure, before slurmctld starts, because HyperPod's
agent rewrites slurm.conf when nodes come and go.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import PurePosixPath
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..facts.identity import read_instances
from ..facts.model import ConfFile, Group, Instance
from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..host.settings import Settings
from . import conf as slurm_conf
from . import containers, extra_conf, partitions, shared_queue, topology
from . import gres as slurm_gres

# The time limit of hyperpod-configure, in seconds.
PATIENCE = 20.0
# Seconds until Slurm must have taken a configuration.
TOLD_SECONDS = 60.0


def configure(
    host: Host,
    groups: Mapping[str, Group],
    instances: Sequence[Instance],
    shared: str,
    extra: Optional[Sequence[ConfFile]] = None,
) -> bool:
    """Write hyperpod.conf, gres.conf and the include line, where they differ. True when something changed.

    ``extra``: the stack's own files, by default those that this controller uses.
    """
    extra = extra_conf.kept(host) if extra is None else extra
    etc, bin_folder = host.settings.slurm_etc, host.settings.install_folder + "/bin"
    name = f"{etc}/slurm.conf"
    text = host.read(name)
    if text is None:
        raise StepError(f"{name} is missing")
    conf = read(host)
    by_node = slurm_conf.groups_of_nodes(conf, instances, recorded(host, shared), groups)
    changed = False
    gres = host.read(f"{etc}/gres.conf")
    has_gres = any(slurm_conf.gres(group) for group in groups.values() if group.role == "worker")
    # A file in which HyperPod's agent or a person says something takes precedence.
    if has_gres and (slurm_conf.says_nothing(gres) or str(gres).startswith(slurm_conf.HEADER)):
        named = slurm_gres.as_named(conf, by_node)
        changed |= host.write(f"{etc}/gres.conf", slurm_gres.render(named or _workers(groups)))
    known = facts(host)
    in_containers = bool(known.get("containers")) and containers.ready(host)
    if in_containers:
        changed |= containers.settle(host)
    contain = bool(known.get("ssh_only_with_job"))
    database = str(known["address"] or host.hostname()) if known.get("accounting") else ""
    more = {"StateSaveLocation": shared_queue.STATE} if known.get("shared_queue") else {}
    gate = host.read(f"{bin_folder}/{slurm_conf.GATE}") if known.get("setup") == "image" else None
    if gate:
        changed |= host.write(f"{etc}/{slurm_conf.GATE}", gate, mode=0o755)
        more.update(slurm_conf.GATED)
    known_conf = extra_conf.over(conf, extra)
    ours = slurm_conf.render(known_conf, groups, by_node, bin_folder, contain, database, in_containers, more)
    ours += slurm_gres.default(known_conf, groups)
    ours += partitions.render(groups, by_node, {*conf.partitions, *extra_conf.partitions(extra)})
    changed |= extra_conf.write(host, extra)
    changed |= host.write(f"{etc}/{slurm_conf.INCLUDE}", ours + extra_conf.includes(extra))
    changed |= extra_conf.remove_others(host, extra)
    login = slurm_conf.login_nodes(conf, instances, groups)
    workers = {name for entry in conf.nodes for name in slurm_conf.expand(entry["nodename"])} - login
    settled, mapped = topology.settle(host, text, workers)
    settled = slurm_conf.with_future(settled, login)
    settled = slurm_gres.with_gres(settled, by_node, groups)
    settled = partitions.with_features(settled, by_node, groups)
    carrier = slurm_conf.carrier(text)
    # Last, because the included files are complete now.
    if carrier:
        changed |= _rewrite(host, _beside(host, carrier), slurm_conf.with_include)
        settled = slurm_conf.without_include(settled)
    else:
        settled = slurm_conf.with_include(settled)
    changed |= _rewrite(host, name, lambda _: settled)
    return changed or mapped


def read(host: Host) -> slurm_conf.SlurmConf:
    """slurm.conf with everything it includes, except our part."""
    text = host.read(f"{host.settings.slurm_etc}/slurm.conf") or ""
    return slurm_conf.parse(_whole(host, text, without=slurm_conf.INCLUDE))


def effective(host: Host) -> slurm_conf.SlurmConf:
    """``read`` with the stack's own lines in the place of others."""
    return extra_conf.over(read(host), extra_conf.kept(host))


def _rewrite(host: Host, name: str, edit: Callable[[str], str]) -> bool:
    """Edit a file that others own, keeping its mode and owner. True if it changed."""
    text = host.read(name)
    if text is None:
        return host.write(name, edit(""))
    wanted = edit(text)
    return wanted != text and host.write(name, wanted, host.path(name).stat().st_mode & 0o777, host.owner(name))


def _beside(host: Host, name: str) -> str:
    """An included file's path: relative names are beside slurm.conf."""
    return str(PurePosixPath(host.settings.slurm_etc) / name)


def tell_nodes(host: Host) -> None:
    """Have Slurm read its configuration again and send it to the nodes.

    Nobody tells them a second time: a slurmctld that starts is asked until it has. Raises StepError if it does not in
    time.
    """

    def told() -> bool:
        done = host.run("scontrol", "reconfigure", check=False)
        if done.code != 0:
            raise NotYet(done.reason)
        return True

    host.poll("Slurm did not read its configuration again", told, TOLD_SECONDS, first=0.25, most=2)


def publish(host: Host, shared: str) -> None:
    """Publish a copy for login nodes, which have no slurmd to fetch it: slurm.conf with everything it includes.

    Only daemons need the passwords and the topology: clients without a map leave it to the controller.
    """
    etc = host.settings.slurm_etc
    whole = _whole(host, host.read(f"{etc}/slurm.conf") or "")
    # A line may have several settings.
    whole = re.sub(r'[ \t]*\b\w*Pass[ \t]*=[ \t]*("[^"\n]*"|\S+)', "", whole, flags=re.I)
    # For sacct on other nodes, too, the controller's own database is on the controller.
    here = facts(host).get("address") or host.hostname()
    whole = re.sub(r"^(\s*AccountingStorageHost\s*=\s*)(localhost|127\.\S+)", rf"\g<1>{here}", whole, flags=re.M | re.I)
    host.write(f"{shared}/slurm/slurm.conf", whole)


def _whole(host: Host, text: str, without: str = "") -> str:
    """slurm.conf with what it includes, one file apart."""

    def read(name: str) -> Optional[str]:
        try:
            return None if name == without else host.read(_beside(host, name))
        except (OSError, ValueError):  # a folder, or no name of a file
            return None

    return slurm_conf.inline(text, read)


def sources(host: Host, shared: str) -> List[str]:
    """The inputs of the configuration that change while a cluster exists."""
    etc = host.settings.slurm_etc
    return [
        f"{etc}/slurm.conf",
        f"{etc}/accounting.conf",
        *(f"{etc}/{name}" for name in topology.MAPS),
        f"{shared}/slurm/nodes",
    ]


def facts(host: Host) -> Dict[str, Any]:
    """What the scripts recorded about this node when it booted."""
    return dict(json.loads(host.read(f"{host.settings.state_folder}/node.json") or "{}"))


def known_groups(host: Host) -> Dict[str, Group]:
    """The cluster's instance groups, from the scripts' records on this node."""
    return {record["name"]: Group(**record) for record in facts(host)["groups"]}


def configure_again(host: Host) -> bool:
    """``configure``, from the scripts' records on this node."""
    return configure(host, known_groups(host), read_instances(host), str(facts(host)["shared"]))


def hide_login_nodes(host: Host, groups: Mapping[str, Group], instances: Sequence[Instance]) -> None:
    """Take login nodes out of slurmctld's lists, where an earlier reading of slurm.conf has left them.

    24.11 does so itself when it reads that they are FUTURE; 26.05 keeps an idle one, which jobs would wait for.
    """
    for name in sorted(slurm_conf.login_nodes(read(host), instances, groups)):
        if host.run("scontrol", "show", "node", name, check=False, timeout=10).code == 0:
            # Only a node that is down can be made one of the future.
            for state in (("State=DOWN", "Reason=login node"), ("State=FUTURE",)):
                host.run("scontrol", "update", f"NodeName={name}", *state, check=False)


def main() -> None:
    """``hyperpod-configure``. It may not keep slurmctld from starting: the shared file system may not answer."""
    worker = threading.Thread(target=configure_again, args=(Host(Settings.from_environment()),), daemon=True)
    worker.start()
    worker.join(PATIENCE)


def record(host: Host, shared: str, group: str) -> None:
    """A worker records its group: its address may be newer than the controller's list."""
    host.folder(f"{shared}/slurm/nodes")
    host.write(f"{shared}/slurm/nodes/{host.hostname()}", group + "\n")


def recorded(host: Host, shared: str) -> Dict[str, str]:
    """The workers' records."""
    folder = host.path(f"{shared}/slurm/nodes")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {name: (host.read(f"{shared}/slurm/nodes/{name}") or "").strip() for name in names if name[0] != "."}


def _workers(groups: Mapping[str, Group]) -> Dict[str, Group]:
    """All workers, if they are alike, for the time before slurm.conf has any node."""
    workers = [group for group in groups.values() if group.role == "worker"]
    return {"*": workers[0]} if len({slurm_conf.gres(group) for group in workers}) == 1 else {}


if __name__ == "__main__":
    main()

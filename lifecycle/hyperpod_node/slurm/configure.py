"""Renders our part of the controller's Slurm configuration, which one line of slurm.conf includes.

The hyperpod-requeue service also calls it, and hyperpod-configure before slurmctld starts, because HyperPod's agent
rewrites slurm.conf when nodes come and go.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..facts import node_record
from ..facts.identity import read_instances
from ..facts.model import ConfFile, Group, Instance, NodeRecord
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
    host: Host, record: NodeRecord, instances: Sequence[Instance], extra: Optional[Sequence[ConfFile]] = None
) -> bool:
    """Write hyperpod.conf, gres.conf and the include line, if they differ. Return True when something changed.

    ``extra``: the stack's own files, by default those that this controller uses.
    """
    found = look(host, record, instances)
    return write(host, decide(found, record, extra_conf.in_use(host) if extra is None else extra))


@dataclass(frozen=True)
class Found:
    """The controller's files, and the nodes that they name. ``conf``: slurm.conf with all that it includes, except
    ours.

    ``beside``: the files next to slurm.conf that matter, by name, and ``own``: those of the stack's own lines.
    ``by_node`` has only workers. ``plugins``: whether containers' plug-ins are here. ``gate``: the image's prolog.
    """

    text: str
    conf: slurm_conf.SlurmConf
    beside: Mapping[str, Optional[str]]
    own: Tuple[str, ...]
    by_node: Mapping[str, Group]
    login: Set[str]
    plugins: bool
    gate: Optional[str]
    bin_folder: str
    address: str


@dataclass(frozen=True)
class Wanted:
    """The files next to slurm.conf: ``ours`` in the order of writing, ``gone``, and those that others own too.

    Others' files come last, because the files that they include have to be complete.
    """

    ours: Mapping[str, str]
    gone: Sequence[str]
    others: Mapping[str, str]
    plugins: bool


def look(host: Host, record: NodeRecord, instances: Sequence[Instance]) -> Found:
    """Read all input of the configuration. Raises StepError without a slurm.conf."""
    etc, bin_folder = host.settings.slurm_etc, host.settings.install_folder + "/bin"
    text = host.read(f"{etc}/slurm.conf")
    if text is None:
        raise StepError(f"{etc}/slurm.conf is missing")
    conf, groups = read(host), record.parameters.groups
    carrier = slurm_conf.carrier(text)
    names = ("gres.conf", *topology.MAPS, *((carrier,) if carrier else ()))
    return Found(
        text=text,
        conf=conf,
        beside={name: host.read(_included_path(host, name)) for name in names},
        own=extra_conf.written_names(host),
        by_node=slurm_conf.groups_of_nodes(conf, instances, recorded(host, record.shared), groups),
        login=slurm_conf.login_nodes(conf, instances, groups),
        plugins=record.parameters.containers and containers.ready(host),
        gate=host.read(f"{bin_folder}/{slurm_conf.GATE}") if record.parameters.setup == "image" else None,
        bin_folder=bin_folder,
        address=record.instance.address or host.hostname(),
    )


def decide(found: Found, record: NodeRecord, extra: Sequence[ConfFile]) -> Wanted:
    """Return the wanted files, without a look at the node."""
    groups, gres = record.parameters.groups, found.beside["gres.conf"]
    ours: Dict[str, str] = {}
    has_gres = any(slurm_conf.gres(group) for group in groups.values() if group.role == "worker")
    # A file in which HyperPod's agent or a person says something takes precedence.
    if has_gres and (slurm_conf.is_blank(gres) or str(gres).startswith(slurm_conf.HEADER)):
        named = slurm_gres.with_named_types(found.conf, found.by_node)
        ours["gres.conf"] = slurm_gres.render(named or _workers(groups))
    if found.gate:
        ours[slurm_conf.GATE] = found.gate
    ours.update(extra_conf.texts(extra))
    gone = [name for name in found.own if name not in ours]
    ours[slurm_conf.INCLUDE] = _render_hyperpod_conf(found, record, extra)
    workers = {name for entry in found.conf.nodes for name in slurm_conf.expand(entry["nodename"])} - found.login
    text, maps = topology.settle(found.text, found.beside, workers)
    ours.update({name: lines for name, lines in maps.items() if lines is not None})
    gone += [name for name, lines in maps.items() if lines is None]
    text = slurm_conf.with_future(text, found.login)
    text = slurm_gres.with_gres(text, found.by_node, groups)
    text = partitions.with_features(text, found.by_node, groups)
    others: Dict[str, str] = {}
    carrier = slurm_conf.carrier(found.text)
    if carrier:
        others[carrier] = slurm_conf.with_include(found.beside[carrier] or "")
    others["slurm.conf"] = slurm_conf.without_include(text) if carrier else slurm_conf.with_include(text)
    return Wanted(ours, gone, others, found.plugins)


def write(host: Host, wanted: Wanted) -> bool:
    """Write the files that differ. Return True if any did."""
    changed = wanted.plugins and containers.settle(host)
    for name, text in wanted.ours.items():
        mode = 0o755 if name == slurm_conf.GATE else 0o644
        changed |= host.write(_included_path(host, name), text, mode=mode)
    for name in wanted.gone:
        changed |= host.remove(_included_path(host, name))
    for name, text in wanted.others.items():
        changed |= _rewrite(host, _included_path(host, name), text)
    return changed


def _render_hyperpod_conf(found: Found, record: NodeRecord, extra: Sequence[ConfFile]) -> str:
    """Return hyperpod.conf."""
    known, groups = record.parameters, record.parameters.groups
    conf = extra_conf.override(found.conf, extra)
    more = {"StateSaveLocation": shared_queue.STATE} if known.shared_queue else {}
    if found.gate:
        more.update(slurm_conf.GATED)
    database = found.address if known.accounting else ""
    text = slurm_conf.render(
        conf, groups, found.by_node, found.bin_folder, known.ssh_only_with_job, database, found.plugins, more
    )
    text += slurm_gres.default(conf, groups)
    text += partitions.render(groups, found.by_node, {*found.conf.partitions, *extra_conf.partitions(extra)})
    return text + extra_conf.includes(extra)


def read(host: Host) -> slurm_conf.SlurmConf:
    """Return slurm.conf with everything it includes, except our part."""
    text = host.read(f"{host.settings.slurm_etc}/slurm.conf") or ""
    return slurm_conf.parse(_inlined(host, text, without=slurm_conf.INCLUDE))


def effective(host: Host) -> slurm_conf.SlurmConf:
    """Like ``read``, with the stack's own lines in place of others."""
    return extra_conf.override(read(host), extra_conf.in_use(host))


def _rewrite(host: Host, name: str, text: str) -> bool:
    """Write a file that others own too, keeping its mode and owner. Return True if it changed."""
    there = host.read(name)
    if there is None:
        return host.write(name, text)
    return text != there and host.write(name, text, host.path(name).stat().st_mode & 0o777, host.owner(name))


def _included_path(host: Host, name: str) -> str:
    """Return an included file's path: relative names are next to slurm.conf."""
    return str(PurePosixPath(host.settings.slurm_etc) / name)


def tell_nodes(host: Host) -> None:
    """Have Slurm read its configuration again and send it to the nodes.

    Nobody sends it a second time: a slurmctld that starts is asked until it has. Raises StepError if it does not in
    time.
    """

    def told() -> bool:
        done = host.run("scontrol", "reconfigure", check=False)
        if done.code != 0:
            raise NotYet(done.reason)
        return True

    host.poll("Slurm did not read its configuration again", told, TOLD_SECONDS, first=0.25, most=2)


def publish(host: Host, record: NodeRecord) -> None:
    """Publish a copy for login nodes, which have no slurmd to fetch it: slurm.conf with everything it includes.

    Only daemons need the passwords and the topology: clients without a map leave it to the controller.
    """
    etc = host.settings.slurm_etc
    whole = _inlined(host, host.read(f"{etc}/slurm.conf") or "")
    # A line may have several settings.
    whole = re.sub(r'[ \t]*\b\w*Pass[ \t]*=[ \t]*("[^"\n]*"|\S+)', "", whole, flags=re.I)
    # For sacct on other nodes, too, the controller's own database is on the controller.
    here = record.instance.address or host.hostname()
    whole = re.sub(r"^(\s*AccountingStorageHost\s*=\s*)(localhost|127\.\S+)", rf"\g<1>{here}", whole, flags=re.M | re.I)
    host.write(f"{record.shared}/slurm/slurm.conf", whole)


def _inlined(host: Host, text: str, without: str = "") -> str:
    """Return slurm.conf with its included files, except one."""

    def read(name: str) -> Optional[str]:
        try:
            return None if name == without else host.read(_included_path(host, name))
        except (OSError, ValueError):  # a folder, or no name of a file
            return None

    return slurm_conf.inline(text, read)


def sources(host: Host, shared: str) -> List[str]:
    """Return the inputs of the configuration that change while a cluster exists."""
    etc = host.settings.slurm_etc
    return [
        f"{etc}/slurm.conf",
        f"{etc}/accounting.conf",
        *(f"{etc}/{name}" for name in topology.MAPS),
        f"{shared}/slurm/nodes",
    ]


def configure_again(host: Host) -> bool:
    """Run ``configure`` with the last boot's record of this node."""
    return configure(host, node_record.read(host), read_instances(host))


def hide_login_nodes(host: Host, groups: Mapping[str, Group], instances: Sequence[Instance]) -> None:
    """Remove login nodes from slurmctld's lists, if an earlier reading of slurm.conf has left them there.

    24.11 does so itself when it reads that they are FUTURE; 26.05 keeps an idle one, which jobs would wait for.
    """
    for name in sorted(slurm_conf.login_nodes(read(host), instances, groups)):
        if host.run("scontrol", "show", "node", name, check=False, timeout=10).code == 0:
            # Only a node that is down can be made one of the future.
            for state in (("State=DOWN", "Reason=login node"), ("State=FUTURE",)):
                host.run("scontrol", "update", f"NodeName={name}", *state, check=False)


def main() -> None:
    """``hyperpod-configure``. It must not keep slurmctld from starting: the shared file system may not answer."""
    worker = threading.Thread(target=configure_again, args=(Host(Settings.from_environment()),), daemon=True)
    worker.start()
    worker.join(PATIENCE)


def record(host: Host, shared: str, group: str) -> None:
    """Record a worker's group: its address may be newer than the controller's list."""
    host.folder(f"{shared}/slurm/nodes")
    host.write(f"{shared}/slurm/nodes/{host.hostname()}", group + "\n")


def recorded(host: Host, shared: str) -> Dict[str, str]:
    """Return the workers' records."""
    folder = host.path(f"{shared}/slurm/nodes")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {name: (host.read(f"{shared}/slurm/nodes/{name}") or "").strip() for name in names if name[0] != "."}


def _workers(groups: Mapping[str, Group]) -> Dict[str, Group]:
    """Return all workers, if they are alike, for the time before slurm.conf has any node."""
    workers = [group for group in groups.values() if group.role == "worker"]
    return {"*": workers[0]} if len({slurm_conf.gres(group) for group in workers}) == 1 else {}


if __name__ == "__main__":
    main()

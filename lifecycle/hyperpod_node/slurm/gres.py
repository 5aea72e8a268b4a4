"""Accelerators in Slurm: the GRES of nodes in slurm.conf, and their devices in gres.conf.

If groups differ, HyperPod's agent may write slurm.conf without the GRES of single nodes and have it read before
hyperpod-requeue has restored them. slurmctld then ends each job with accelerators on a node whose number of them
differs from the job's (its gres_job_revalidate2()), and reads none of our files in between: at ``scontrol reconfigure``
it starts its own program again (its controller.c, _try_to_reconfig()). A default in hyperpod.conf, which is read before
the agent's lines of nodes, can have only one number.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, List, Mapping

from ..facts.model import Group
from ..host.accelerators import DEVICES
from .conf import HEADER, SlurmConf, expand, gres, settings


def default(conf: SlurmConf, groups: Mapping[str, Group]) -> str:
    """Return hyperpod.conf's line with the default GRES of nodes, which applies to later nodes too; empty without any.

    If groups differ it is that of the largest nodes, without the model if they have several. If they are alike,
    slurm.conf's own lines may be enough.
    """
    workers = [group for group in groups.values() if group.role == "worker"]
    most = max(workers, key=lambda group: group.accelerators, default=None)
    if not most or not gres(most):
        return ""
    alike = len({gres(group) for group in workers}) == 1
    if alike and conf.nodes and all("gres" in entry for entry in conf.nodes):
        return ""
    kinds = {gres(group) for group in workers if group.accelerators == most.accelerators}
    return f"NodeName=DEFAULT Gres={kinds.pop() if len(kinds) == 1 else f'{most.gres_name}:{most.accelerators}'}\n"


def with_gres(text: str, by_node: Mapping[str, Group], groups: Mapping[str, Group]) -> str:
    """Add the group's Gres to NodeName lines without one. Needed only if groups differ, so that no default fits all.

    ``gpu:0`` for a group without accelerators: after an empty value, Slurm would read the next key as the value.
    """
    workers = [group for group in groups.values() if group.role == "worker"]
    if len({gres(group) for group in workers}) < 2:
        return text
    none = next(f"{group.gres_name}:0" for group in workers if gres(group))
    lines = []
    for line in text.splitlines():
        entry = line.split("#")[0]
        name = settings(entry).get("nodename", "")
        # Looked for as text: after a key without a value, Slurm takes the next key for that value.
        if name and name.upper() != "DEFAULT" and not re.search(r"\bgres\s*=", entry, re.IGNORECASE):
            kinds = {gres(by_node[n]) for n in expand(name) if n in by_node}
            if len(kinds) == 1:
                line = f"{line.rstrip()} Gres={kinds.pop() or none}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def untyped(conf: SlurmConf, groups: Mapping[str, Group]) -> List[str]:
    """Warn if slurm.conf's own lines of nodes name accelerators without the type for which jobs may ask.

    Slurm follows these lines: it then refuses a request with a type, and serves one without (seen when rehearsed). They
    are HyperPod's agent's, which also reads them, so they stay as they are.
    """
    kinds = sorted({gres(group) for group in groups.values() if ":" in group.gres})
    plain = sorted({entry["gres"] for entry in conf.nodes if re.fullmatch(r"\w+(:\d+)?", entry.get("gres", ""))})
    if not kinds or not plain:
        return []
    return [f"slurm.conf gives nodes Gres={plain[0]}, so Slurm refuses --gres={kinds[0]}; without the type it works"]


def with_named_types(conf: SlurmConf, by_node: Mapping[str, Group]) -> Dict[str, Group]:
    """Return the nodes' groups, with the type of accelerators that slurm.conf's own lines name, as HyperPod's may.

    For such a node Slurm ignores the file of a line in gres.conf without that type (its interfaces/gres.c,
    _merge_gres2): it would count accelerators, and jobs would not learn which are theirs.
    """
    found = dict(by_node)
    for entry in conf.nodes:
        for name in expand(entry["nodename"]):
            kind = found[name].gres_name if name in found else ""
            named = re.search(rf"\b{kind}:([A-Za-z][^:,(]*)", entry.get("gres", "")) if kind else None
            if named:
                found[name] = replace(found[name], gres=f"{kind}:{named.group(1)}")
    return found


def render(by_node: Mapping[str, Group]) -> str:
    """Return gres.conf: the device files per node. If all nodes are alike it names none, and covers later nodes too."""
    lines = ["AutoDetect=off"]
    kinds = {(group.gres, group.accelerators) for group in by_node.values()}
    for kind, count in sorted(kinds):
        if not kind or not count:
            continue
        nodes = "" if len(kinds) == 1 else _names(by_node, kind, count)
        name, _, model = kind.partition(":")
        files = DEVICES[name] + (f"[0-{count - 1}]" if count > 1 else "0")
        lines.append(f"{nodes}Name={name} {f'Type={model} ' if model else ''}File={files}")
    return HEADER + "\n".join(lines) + "\n"


def _names(by_node: Mapping[str, Group], kind: str, count: int) -> str:
    names = sorted(name for name, group in by_node.items() if (group.gres, group.accelerators) == (kind, count))
    return f"NodeName={','.join(names)} "

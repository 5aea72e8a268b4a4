"""Slurm on this node: the controller's daemon, a worker's, or a login node's commands, each proven to work."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, Dict, List, Optional, Set

from . import slurm_conf, slurm_configure
from .errors import NotYet, StepError
from .host import Host
from .model import Instance, Node

UNITS = "/etc/systemd/system"
UNIT_FOLDERS = (UNITS, "/usr/local/lib/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
REQUEUE_UNIT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Puts jobs of a lost node back to work at once
After=slurmctld.service

[Service]
ExecStart={bin}/hyperpod-requeue
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
# A unit that has no business on this node: it is not only disabled, it does not start when somebody asks for it.
NEVER = """# Made by the HyperPod lifecycle scripts: this node is a {role}.
[Unit]
ConditionPathExists=/etc/hyperpod/runs-{unit}
"""
# systemd would end it after 90 s.
SLURMCTLD = """# Made by the HyperPod lifecycle scripts.
[Service]
TimeoutStartSec={seconds}
"""
# Pinned memory and open files of a job are its daemon's; a worker has no configuration of its own to ask for.
SLURMD = """# Made by the HyperPod lifecycle scripts.
[Unit]
ConditionPathExists=

[Service]
ExecStart=
ExecStart={command}
Restart=on-failure
RestartSec=2
LimitMEMLOCK=infinity
LimitNOFILE=1048576
LimitSTACK=infinity
"""
# Reasons that a fresh boot settles. What HyperPod's health agent writes ("Action:Replace") is not among them.
SETTLED = ("not responding", "hyperpod-requeue", "node unexpectedly rebooted", "low ", "reboot")
# Seconds in which a refused registration may still be the controller's reading of its new configuration.
REFUSAL_GRACE = 20.0


def run(node: Node) -> str:
    """Step ``slurm``."""
    return {"controller": _controller, "login": _login, "worker": _worker}[node.role](node)


# The controller


def _controller(node: Node) -> str:
    host = node.host
    name = f"{host.settings.slurm_etc}/slurm.conf"
    _require_unit(node, "slurmctld")
    _await_agent(node, name)
    _claim(node, slurm_conf.parse(host.read(name) or ""))
    if host.write(
        f"{UNITS}/slurmctld.service.d/20-hyperpod.conf", SLURMCTLD.format(seconds=int(node.timeout("slurm")))
    ):
        host.run("systemctl", "daemon-reload")
    changed = slurm_configure.configure(host, node.parameters.groups, node.identity.instances, node.shared)
    conf = slurm_conf.parse(host.read(name) or "")
    for complaint in slurm_conf.missing_keys(conf, host.settings.install_folder + "/bin"):
        node.warn(complaint)
    _never(node, "slurmd")
    was_running = _start(node, "slurmctld", restart=changed)
    host.poll("slurmctld did not answer `scontrol ping`", lambda: _ping(host), node.timeout("slurm"), most=0.25)
    if was_running and changed:
        host.run("scontrol", "reconfigure")
    slurm_configure.publish(host, node.shared)
    unit = REQUEUE_UNIT.format(bin=host.settings.install_folder + "/bin")
    fresh = host.write(f"{UNITS}/hyperpod-requeue.service", unit)
    if fresh:
        host.run("systemctl", "daemon-reload")
    _start(node, "hyperpod-requeue", restart=fresh or any("/lib/hyperpod_node/" in c for c in host.changes))
    return f"slurmctld up, {len(conf.nodes)} node lines" + (", configuration changed" if changed else "")


def _await_agent(node: Node, name: str) -> None:
    """Wait until slurm.conf is the agent's: the image's own names no controller, or none of this cluster."""
    host = node.host
    host.poll(
        f"HyperPod's agent did not write {name}",
        lambda: slurm_conf.parse(host.read(name) or "").controllers,
        node.timeout("agent"),
    )
    # Where it goes on naming somebody else, the claim says what is wrong.
    with contextlib.suppress(StepError):
        host.poll("", lambda: _names_us(node, host.read(name) or ""), node.timeout("agent-names"))


def _names_us(node: Node, text: str) -> bool:
    """Whether slurm.conf has one of the cluster's controllers, by address, by HyperPod's name for it or by its own."""
    controllers = node.identity.in_role("controller", node.parameters.groups)
    addresses = {i.address for i in controllers if i.address}
    ours = addresses | {i.name for i in controllers} | {slurm_conf.host_name(address) for address in addresses}
    if node.role == "controller":
        ours.add(node.host.hostname())
    named = {part for pair in slurm_conf.parse(text).controllers for part in pair if part}
    if ours & (named | {name.split(".")[0] for name in named}):
        return True
    return any(addresses & set(node.host.resolve(name)) for name in named)


def _claim(node: Node, conf: slurm_conf.SlurmConf) -> None:
    """This node is the controller by its group; make sure that no other is, unless slurm.conf names both."""
    host, own = node.host, node.identity.instance
    named = {part for pair in conf.controllers for part in pair if part}
    names = {host.hostname(), own.address, own.name}
    if named and not any(n in names or n.split(".")[0] in names for n in named):
        _alias(node, named)
    name = f"{node.shared}/slurm/controller.json"
    other: Dict[str, Any] = json.loads(host.read(name) or "{}")
    alive = {i.instance_id for i in node.identity.in_role("controller", node.parameters.groups)}
    rival = other.get("instance_id")
    if rival and rival != own.instance_id and rival in alive and not {other["hostname"], other["address"]} & named:
        raise StepError(
            f"two controllers claim the cluster: this one ({own.instance_id}, {host.hostname()}) "
            f"and {rival} ({other['hostname']}), which slurm.conf here does not name"
        )
    claim = {"instance_id": own.instance_id, "hostname": host.hostname(), "address": own.address}
    if not (rival in alive and rival != own.instance_id):
        host.write(name, json.dumps(claim, sort_keys=True) + "\n")


def _alias(node: Node, named: Set[str]) -> None:
    """slurm.conf calls its controllers by other names than ours; this node may still be one of them."""
    host, own = node.host, node.identity.instance
    addresses = {address for name in named for address in host.resolve(name)}
    who, theirs = f"this node ({host.hostname()}, {own.address})", ", ".join(sorted(named))
    if not addresses:
        node.warn(f"slurm.conf names {theirs} as controller, which does not resolve; {who} takes it for itself")
    elif not addresses & {own.address, *host.addresses()}:
        raise StepError(
            f"{who} is a controller by its group, and slurm.conf names {theirs}: two controllers claim the cluster"
        )


def _ping(host: Host) -> bool:
    result = host.run("scontrol", "ping", check=False, timeout=10)
    if result.code == 0 and re.search(r"\bUP\b", result.out):
        return True
    raise NotYet(result.reason)


# A worker


def _worker(node: Node) -> str:
    host = node.host
    unit = _require_unit(node, "slurmd")
    controllers = node.identity.in_role("controller", node.parameters.groups)
    if not controllers:
        raise StepError(f"{host.settings.resource_config} has no controller")
    slurm_configure.record(host, node.shared, node.identity.group.name)
    host.write(f"{host.settings.state_folder}/prolog.env", _prolog_facts(node))
    _never(node, "slurmctld")
    command = with_servers(_exec_start(unit), [i.address for i in controllers])
    changed = host.write(f"{UNITS}/slurmd.service.d/10-hyperpod.conf", SLURMD.format(command=command))
    if changed:
        host.run("systemctl", "daemon-reload")
    # slurmd gives up after some seconds without a controller; starting it earlier would only look like progress.
    port = slurm_conf.parse(host.read(f"{node.shared}/slurm/slurm.conf") or "").port
    where = ", ".join(f"{i.address}:{port}" for i in controllers)
    host.poll(
        f"no controller answered at {where}", lambda: _answering(host, controllers, port), node.timeout("controller")
    )
    _start(node, "slurmd", restart=changed)
    state = _registered(node)
    return f"slurmd registered with {where}, {state.lower()}"


def _answering(host: Host, controllers: List[Instance], port: int) -> bool:
    return any(host.answers(i.address, port) for i in controllers)


def with_servers(command: str, servers: List[str]) -> str:
    """A slurmd command line that fetches its configuration from these controllers."""
    bare = re.sub(r"\s--conf-server[= ]\S+", "", command)
    words = bare.split(None, 1)
    return f"{words[0]} --conf-server {','.join(servers)}" + (f" {words[1]}" if len(words) > 1 else "")


def _exec_start(unit: str) -> str:
    lines = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    if not lines:
        raise StepError("slurmd.service has no ExecStart")
    return str(lines[-1]).strip()


def _registered(node: Node) -> str:
    """Wait until the controller has this node as one that takes jobs."""
    host, refused_since = node.host, [0.0]

    def state() -> Optional[str]:
        shown = host.run("scontrol", "show", "node", host.hostname(), "-o", check=False, timeout=10)
        if shown.code != 0 or "State=" not in shown.out:
            running = host.run("systemctl", "is-active", "--quiet", "slurmd", check=False).code == 0
            raise NotYet(f"{shown.reason}" + ("" if running else "; slurmd is not running"))
        words = re.search(r"\bState=(\S+)", shown.out)
        current = words.group(1) if words else "UNKNOWN"
        reason = re.search(r"\bReason=(.*?)(?: \[|$)", shown.out)
        why = reason.group(1).strip() if reason else ""
        flags = current.rstrip("*").split("+")
        if (
            not current.endswith("*")
            and flags[0] in ("IDLE", "MIXED", "ALLOCATED")
            and not {"DRAIN", "FAIL"} & set(flags)
        ):
            return flags[0]
        if flags[0] in ("DOWN", "IDLE", "FAIL") and not current.endswith("*") and why:
            _settle(node, why, refused_since)
        raise NotYet(f"{current}" + (f", {why}" if why else ""))

    return host.poll(
        "the controller did not show this node as idle", state, node.timeout("register"), first=0.03, most=0.3
    )


def _settle(node: Node, why: str, refused_since: List[float]) -> None:
    """A node that is down for a reason that this boot has settled is taken back; any other reason ends the wait."""
    host = node.host
    if why.lower().startswith(SETTLED):
        host.run("scontrol", "update", f"NodeName={host.hostname()}", "State=RESUME", check=False)
        return
    refused_since[0] = refused_since[0] or host.now()
    if host.now() - refused_since[0] > REFUSAL_GRACE:
        raise StepError(f"the controller keeps this node down: {why}")


def _prolog_facts(node: Node) -> str:
    """What the node has now, for hyperpod-prolog to compare with before each job."""
    group = node.identity.group
    prefix = slurm_conf.DEVICES.get(group.gres, "")
    found = 0
    if prefix:
        folder, _, stem = prefix.rpartition("/")
        found = len([p for p in node.host.path(folder).glob(stem + "[0-9]*") if p.name[len(stem) :].isdigit()])
    pattern = f"{prefix}[0-9]*" if prefix else ""
    return f"shared='{node.parameters.fsx_mount}'\ndevices={found}\npattern='{pattern}'\nscratch='/scratch'\n"


# A login node


def _login(node: Node) -> str:
    host = node.host
    if host.which("scontrol") is None:
        raise StepError("Slurm is not installed: command not found: scontrol")
    for unit in ("slurmctld", "slurmd"):
        _never(node, unit)
    etc = host.settings.slurm_etc
    local, copy = f"{etc}/slurm.conf", f"{node.shared}/slurm/slurm.conf"

    def own() -> bool:
        return not host.path(local).is_symlink() and _names_us(node, host.read(local) or "")

    host.poll(
        f"neither {local} named a controller nor its copy was there",
        lambda: own() or host.read(copy) is not None,
        node.timeout("controller"),
    )
    origin = "its own configuration"
    if not own():
        # A link, in place of the image's own file: what the controller changes later holds here too.
        host.link(local, copy)
        origin = "the controller's configuration"
    host.poll("slurmctld did not answer `scontrol ping`", lambda: _ping(host), node.timeout("controller"), most=0.25)
    host.run("sinfo", "-h", timeout=30)
    return f"client commands work, by {origin}"


# Units


def _require_unit(node: Node, unit: str) -> str:
    """A unit's file. Raises StepError where Slurm is not installed."""
    for folder in UNIT_FOLDERS:
        text = node.host.read(f"{folder}/{unit}.service")
        if text is not None:
            return text
    raise StepError(f"Slurm is not installed: no {unit}.service in {', '.join(UNIT_FOLDERS)}")


def _never(node: Node, unit: str) -> None:
    """Keep a unit from running here."""
    host = node.host
    if not any(host.path(f"{folder}/{unit}.service").exists() for folder in UNIT_FOLDERS):
        return
    name = f"{UNITS}/{unit}.service.d/10-hyperpod.conf"
    if host.write(name, NEVER.format(role=node.role, unit=unit)):
        host.run("systemctl", "daemon-reload")
        host.run("systemctl", "disable", unit, check=False)
        host.run("systemctl", "stop", unit, check=False)


def _start(node: Node, unit: str, restart: bool) -> bool:
    """Enabled and running, restarted when asked to. True when it ran before."""
    host = node.host
    running = host.run("systemctl", "is-active", "--quiet", unit, check=False).code == 0
    if not running:
        host.run("systemctl", "enable", unit, check=False)
        # After a failed start systemd may refuse another one for a while.
        host.run("systemctl", "reset-failed", unit, check=False)
        # Where a unit says itself when it is ready, that may take as long as the first answer does.
        host.run("systemctl", "start", unit, timeout=node.timeout("slurm"))
    elif restart:
        host.run("systemctl", "restart", unit, timeout=node.timeout("slurm"))
    return running

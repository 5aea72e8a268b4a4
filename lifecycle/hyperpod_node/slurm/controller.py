"""Slurm on this node: the controller's daemon, a worker's, or a login node's commands, each checked to work."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, Dict, Set

from ..facts import node_record
from ..facts.model import Node, NodeRecord, host_name
from ..host import make_once, units
from ..host.errors import NotYet, StepError
from ..host.host import Host
from . import conf as slurm_conf
from . import configure, extra_conf, gres, shared_queue, trial, worker

REQUEUE_UNIT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Puts jobs of a lost node back to work at once
After=slurmctld.service

[Service]
ExecStart={bin}/hyperpod-requeue
# A socket for each node that does not answer an echo request. Systemd's default is 1024.
LimitNOFILE=65536
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
# systemd's default limit is 90 s. Before each start, root settles the agent's latest changes.
SLURMCTLD = """# Made by the HyperPod lifecycle scripts.
[Unit]
StartLimitIntervalSec=0
{after}
[Service]
ExecStartPre=-+{bin}/hyperpod-settle {conf}
TimeoutStartSec={seconds}
Restart=on-failure
RestartSec=2
"""


def run(node: Node) -> str:
    """Step ``slurm``."""
    return {"controller": _controller, "login": _login, "worker": worker.run}[node.role](node)


# The controller


def _controller(node: Node) -> str:
    host = node.host
    name = f"{host.settings.slurm_etc}/slurm.conf"
    units.require(node.host, "slurmctld")
    await_agent(node)
    if node.by_image:
        host.poll("the image did not start slurmctld", lambda: _ping(host), node.timeout("image"))
    queue_is_shared = node.parameters.shared_queue
    took_over = _claim(node, slurm_conf.parse(host.read(name) or ""))
    if queue_is_shared:
        took_over = shared_queue.keep_shared(node, configure.read(host))
    bin_folder = host.settings.install_folder + "/bin"
    # Its mount comes with the first look at it, and the last look is when slurmctld stops.
    after = units.after_mount(node.parameters.fsx_mount) + "\n" if queue_is_shared else ""
    drop_in = SLURMCTLD.format(bin=bin_folder, conf=name, seconds=int(node.timeout("slurm")), after=after)
    host.write(f"{units.UNITS}/slurmctld.service.d/20-hyperpod.conf", drop_in)
    extra_conf.use(host, extra_conf.shipped(host), node.parameters.cluster_id)
    record = node_record.read(host)
    changed = configure.configure(host, record, node.identity.instances)
    conf = configure.effective(host)
    complaints = slurm_conf.missing_keys(conf, bin_folder)
    complaints += gres.untyped(conf, node.parameters.groups)
    for complaint in complaints + (slurm_conf.not_contained(conf) if node.parameters.ssh_only_with_job else []):
        node.warn(complaint)
    _state_can_be_saved(host, shared_queue.folder(node, conf))
    _await_accounting(node, conf)
    _try_own_lines(node, record)
    if not node.by_image:
        units.prevent(node.host, node.role, "slurmd")
    was_running = units.start(node.host, "slurmctld", restart=changed, wait=False)
    began = host.now()
    host.poll("slurmctld did not answer `scontrol ping`", lambda: _up(host, began), node.timeout("slurm"), most=0.25)
    # slurmd keeps asking the controller that it knows until another one sends it a configuration.
    if took_over or (was_running and changed):
        try:
            configure.tell_nodes(host)
        except StepError as error:
            if not took_over:
                raise
            node.warn(f"{error}: nodes may know the controller of before")
    if queue_is_shared:
        shared_queue.workers_know(node)
    configure.hide_login_nodes(host, node.parameters.groups, node.identity.instances)
    configure.publish(host, record)
    unit = REQUEUE_UNIT.format(bin=bin_folder)
    fresh = host.write(f"{units.UNITS}/hyperpod-requeue.service", unit)
    units.start(node.host, "hyperpod-requeue", restart=fresh or any("/lib/hyperpod_node/" in c for c in host.changes))
    lines = f"{len(conf.nodes)} line{'' if len(conf.nodes) == 1 else 's'} of nodes"
    return f"slurmctld up, {lines}" + (", configuration changed" if changed else "")


def await_agent(node: Node) -> None:
    """Wait until the agent has written slurm.conf: the image's own names no controller of this cluster."""
    host, name = node.host, f"{node.host.settings.slurm_etc}/slurm.conf"
    host.poll(
        f"HyperPod's agent did not write {name}",
        lambda: slurm_conf.parse(host.read(name) or "").controllers,
        node.timeout("agent"),
    )
    # If it keeps naming another host, the claim reports the problem.
    with contextlib.suppress(StepError):
        host.poll("", lambda: _names_us(node, host.read(name) or ""), node.timeout("agent-names"))


def _names_us(node: Node, text: str) -> bool:
    """Whether slurm.conf has one of the cluster's controllers, by address, by HyperPod's name for it or by its own."""
    controllers = node.identity.in_role("controller", node.parameters.groups)
    addresses = {i.address for i in controllers if i.address}
    ours = addresses | {i.name for i in controllers} | {host_name(address) for address in addresses}
    if node.role == "controller":
        ours.add(node.host.hostname())
    named = {part for pair in slurm_conf.parse(text).controllers for part in pair if part}
    if ours & (named | {name.split(".")[0] for name in named}):
        return True
    return any(addresses & set(node.host.resolve(name)) for name in named)


def _state_can_be_saved(host: Host, folder: str) -> None:
    """Check the disk: slurmctld also answers with a full one (seen in the rehearsal), and forgets jobs at its next
    start.
    """
    left = host.free(folder)
    try:
        host.prove_writable(folder)
    except StepError as error:
        raise StepError(f"slurmctld cannot save its state: {error}; {left} bytes are free") from None
    if left < units.LEAST_FREE:
        raise StepError(f"slurmctld cannot save its state: the disk of {folder} is full, {left} bytes are free")


def _await_accounting(node: Node, conf: slurm_conf.SlurmConf) -> None:
    """If slurm.conf names a slurmdbd, start it if it is this node's, and wait until it answers.

    By default HyperPod keeps accounting on the controller (Developer Guide, "Using an external accounting database with
    SageMaker HyperPod Slurm clusters"), and slurmctld ends without it: "slurmdbd must be up at slurmctld start time".
    """
    if "slurmdbd" not in conf.get("AccountingStorageType"):
        return
    host, name = node.host, conf.get("AccountingStorageHost", "localhost")
    ours = name.split(".")[0] in ("localhost", "127", host.hostname()) or name == node.identity.instance.address
    if ours and units.exists(host, "slurmdbd"):
        units.start(node.host, "slurmdbd", restart=False, wait=False)
    where, port, began = "127.0.0.1" if ours else name, conf.port("AccountingStoragePort", 6819), host.now()

    def answers() -> bool:
        if host.answers(where, port):
            return True
        raise units.not_yet(host, "slurmdbd", "nothing listens", began) if ours else NotYet("nothing listens")

    host.poll(f"no slurmdbd answered at {name}:{port}, which slurm.conf names", answers, node.timeout("slurm"))


def _try_own_lines(node: Node, record: NodeRecord) -> None:
    """Name the stack's own line that keeps slurmctld from starting, before it is started."""
    host = node.host
    files = extra_conf.in_use(host)
    if not files:
        return
    try:
        why = trial.refusal(host, record, node.identity.instances, files)
    except trial.CannotTry as unknown:
        node.warn(f"the lines of slurm.extraConf could not be tried before slurmctld has them: {unknown}")
        return
    if why:
        raise StepError(f"slurmctld does not start with slurm.extraConf: {why}")


def _claim(node: Node, conf: slurm_conf.SlurmConf) -> bool:
    """Check that no other node is the controller, unless slurm.conf names both; this node's group makes it one.

    Return True if it replaces a controller on another node.
    """
    host, own = node.host, node.identity.instance
    named = {part for pair in conf.controllers for part in pair if part}
    names = {host.hostname(), own.address, own.name}
    if named and not any(n in names or n.split(".")[0] in names for n in named):
        _alias(node, named)
    name = f"{node.shared}/slurm/controller.json"
    claim = {"instance_id": own.instance_id, "hostname": host.hostname(), "address": own.address}
    text = json.dumps(claim, sort_keys=True) + "\n"
    if host.read(name) is None and make_once.write_once(host, name, text):
        return False
    other: Dict[str, Any] = json.loads(host.read(name) or "{}")
    alive = {i.instance_id for i in node.identity.in_role("controller", node.parameters.groups)}
    rival = other.get("instance_id")
    if rival and rival != own.instance_id and rival in alive and not {other["hostname"], other["address"]} & named:
        raise StepError(
            f"two controllers claim the cluster: this one ({own.instance_id}, {host.hostname()}) "
            f"and {rival} ({other['hostname']}), which slurm.conf here does not name"
        )
    if rival in alive and rival != own.instance_id:
        return False
    host.write(name, text)
    return bool(other) and other["address"] != own.address


def _alias(node: Node, named: Set[str]) -> None:
    """Find this node among the controllers of a slurm.conf that has other names for them than we do."""
    host, own = node.host, node.identity.instance
    addresses = {address for name in named for address in host.resolve(name)}
    who, theirs = f"this node ({host.hostname()}, {own.address})", ", ".join(sorted(named))
    if not addresses:
        node.warn(f"slurm.conf names {theirs} as controller, which does not resolve; {who} takes it for itself")
    elif not addresses & {own.address, *host.addresses()}:
        raise StepError(
            f"{who} is a controller by its group, and slurm.conf names {theirs}: two controllers claim the cluster"
        )


def _up(host: Host, began: float) -> bool:
    """Whether this node's own slurmctld answers. Raises NotYet with its last error if it does not run."""
    try:
        return _ping(host)
    except NotYet as silent:
        raise units.not_yet(host, "slurmctld", str(silent), began) from None


def _ping(host: Host) -> bool:
    """Whether a slurmctld answers."""
    result = host.run("scontrol", "ping", check=False, timeout=10)
    if result.code == 0 and re.search(r"\bUP\b", result.out):
        return True
    raise NotYet(next((line for line in result.out.splitlines() if "DOWN" in line), result.reason).strip())


# A login node


def _login(node: Node) -> str:
    host = node.host
    if host.which("scontrol") is None:
        raise StepError("Slurm is not installed: command not found: scontrol")
    if not node.by_image:
        units.prevent(node.host, node.role, "slurmctld", "slurmd")
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
        # A link replaces the image's file, so that later changes of the controller apply here too.
        host.link(local, copy)
        origin = "the controller's configuration"
    host.poll("slurmctld did not answer `scontrol ping`", lambda: _ping(host), node.timeout("controller"), most=0.25)
    host.run("sinfo", "-h", timeout=30)
    return f"client commands work, by {origin}"

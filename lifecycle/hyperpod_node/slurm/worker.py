"""slurmd on a worker: it registers by itself, now or whenever the controller comes to know this node.

HyperPod's agent writes a node's NodeName line minutes after the node is InService, long after its scripts have ended,
and before they run only if a cluster is created without continuous provisioning (seen by users of HyperPod:
register_slurm_features.sh of AWS's Physical AI Scaffolding Kit). slurmd ends at once while no line names its host, so
systemd starts it again and again, without a limit.
"""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

from ..facts.model import Instance, Node, host_name
from ..host import accelerators, units
from ..host.errors import StepError
from ..host.host import Host, Result
from . import conf, configure, containers, prolog_gate

# A job inherits slurmd's limits for pinned memory, open files and the stack (PropagateResourceLimitsExcept).
SLURMD = """# Made by the HyperPod lifecycle scripts.
[Unit]
ConditionPathExists=
StartLimitIntervalSec=0

[Service]
Environment=HYPERPOD_CONTROLLERS={controllers}
EnvironmentFile=-/run/hyperpod-controllers
ExecStartPre=-{bin}/hyperpod-conf-server {claim}
ExecStart=
ExecStart={command}
Restart=always
RestartSec=2
LimitMEMLOCK=infinity
LimitNOFILE=1048576
LimitSTACK=infinity
"""
# Enough for scontrol to find the controller: a worker has no slurm.conf until slurmd has fetched it, and without one
# Slurm's commands hang for a minute.
CLIENT = """# Made by the HyperPod lifecycle scripts, for themselves.
ClusterName={cluster}
{controllers}
SlurmctldPort={port}
"""
# Reasons that a fresh boot settles; not those of HyperPod's health agent ("Action:Replace").
SETTLED = ("not responding", "hyperpod-requeue", "node unexpectedly rebooted", "low ", "reboot")
# Where the image's slurmd is up before these scripts: a job has waited for them for too long (prolog-gate.sh).
TOO_EARLY = "prolog error"
# slurmd has registered with fewer accelerators than slurm.conf gives the node (gres_node_config_validate).
TOO_FEW = "reported lower than configured"
# Seconds for which a registration may be refused because the controller is still reading its new configuration.
REFUSAL_GRACE = 20.0
NOT_KNOWN = "not known"
TAKES_JOBS = ("IDLE", "MIXED", "ALLOCATED")
# With State=CLOUD in its line, as HyperPod's have it, a node that has not registered is IDLE and POWERED_DOWN.
NOT_HERE = {"DRAIN", "FAIL", "INVALID_REG", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}


def run(node: Node) -> str:
    """Do a worker's part of step ``slurm``."""
    host = node.host
    unit = units.require(node.host, "slurmd")
    controllers = node.identity.in_role("controller", node.parameters.groups)
    if not controllers:
        raise StepError(f"{host.settings.resource_config} has no controller")
    configure.record(host, node.shared, node.identity.group.name)
    facts = f"{host.settings.state_folder}/prolog.env"
    known = host.read(facts) is not None
    host.write(facts, _prolog_facts(node))
    changed = False if node.by_image else _drop_in(node, unit, controllers)
    # slurmd gives up after some seconds without a controller; starting it earlier would only look like progress.
    port = conf.parse(host.read(f"{node.shared}/slurm/slurm.conf") or "").port("SlurmctldPort", 6817)
    where = ", ".join(f"{i.address}:{port}" for i in controllers)
    host.poll(
        f"no controller answered at {where}", lambda: _answering(host, controllers, port), node.timeout("controller")
    )
    named = "\n".join(f"SlurmctldHost={host_name(i.address)}({i.address})" for i in controllers)
    client = CLIENT.format(cluster=node.parameters.cluster_name, controllers=named, port=port)
    host.write(_client_conf(host), client)
    if node.by_image:
        prolog_gate.keep_executable(host)
    # The image's slurmd is the image's to start, and may run before these scripts do.
    lives = known if node.by_image else units.start(node.host, "slurmd", restart=changed, wait=False)
    state = _registered(node, lives)
    if state is None:
        return f"{where} does not know {host.hostname()} yet; slurmd starts by itself once it does"
    return f"slurmd registered with {where}, {state.lower()}"


def _drop_in(node: Node, unit: str, controllers: Sequence[Instance]) -> bool:
    """Have slurmd fetch its configuration, and retry without end. Return True if the unit changed."""
    host = node.host
    units.prevent(node.host, node.role, "slurmctld")
    drop_in = SLURMD.format(
        controllers=",".join(i.address for i in controllers),
        bin=host.settings.install_folder + "/bin",
        claim=f"{node.shared}/slurm/controller.json",
        command=with_server(_exec_start(unit)),
    )
    return host.write(f"{units.UNITS}/slurmd.service.d/10-hyperpod.conf", drop_in)


def _answering(host: Host, controllers: List[Instance], port: int) -> bool:
    return any(host.answers(i.address, port) for i in controllers)


def with_server(command: str) -> str:
    """Return a slurmd command line that fetches its configuration from the controllers in its environment."""
    bare = re.sub(r"\s--conf-server[= ]\S+", "", command)
    words = bare.split(None, 1)
    return f"{words[0]} --conf-server ${{HYPERPOD_CONTROLLERS}}" + (f" {words[1]}" if len(words) > 1 else "")


def _exec_start(unit: str) -> str:
    lines = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    if not lines:
        raise StepError("slurmd.service has no ExecStart")
    return str(lines[-1]).strip()


def _client_conf(host: Host) -> str:
    return f"{host.settings.state_folder}/slurm-client.conf"


def scontrol(host: Host, *words: str) -> Result:
    """Return scontrol on a worker, by what we know of the controller."""
    environment = {"SLURM_CONF": str(host.path(_client_conf(host)))}
    return host.run("scontrol", *words, check=False, timeout=10, env=environment)


def _registered(node: Node, lives: bool) -> Optional[str]:
    """Wait until this node takes jobs, by the controller; return None at once if the controller does not know it.

    If slurmd ran before (``lives``), these scripts are not the node's first: a person who has drained it since also
    resumes it.
    """
    host, refused_since = node.host, [0.0]
    began, settled = host.now(), (*SETTLED, TOO_EARLY) if node.by_image and not lives else SETTLED

    def look() -> str:
        shown = _shown(node)
        if shown.code != 0 and "not found" in shown.out + shown.err:
            return NOT_KNOWN
        if shown.code != 0 or "State=" not in shown.out:
            raise units.not_yet(host, "slurmd", shown.reason, began)
        name, current = _field(shown.out, "NodeName"), _field(shown.out, "State")
        why = re.search(r"\bReason=(.*?)(?: \[|$)", shown.out)
        reason, flags = why.group(1).strip() if why else "", current.rstrip("*").split("+")
        silent = current.endswith("*")
        theirs = {"DRAIN"} if lives and not reason.lower().startswith(settled) else set()
        if not silent and flags[0] in TAKES_JOBS and not (NOT_HERE - theirs) & set(flags):
            return flags[0] + (", drained" if "DRAIN" in flags else "")
        # The image's slurmd may be up before the controller's scripts have said which accelerators its node has. The
        # node then is drained, and stays so when it has registered with all of them.
        early = node.by_image and TOO_FEW in reason
        if flags[0] in ("DOWN", "IDLE", "FAIL") and not silent and reason and not (early and "INVALID_REG" in flags):
            _settle(host, name, reason, refused_since, (*settled, reason.lower()) if early else settled)
        raise units.not_yet(host, "slurmd", current + (f", {reason}" if reason else ""), began)

    what = "the controller did not show this node as idle"
    found = host.poll(what, look, node.timeout("register"), first=0.03, most=0.3)
    return None if found == NOT_KNOWN else found


def _shown(node: Node) -> Result:
    """Return the controller's record of this node, which it knows by its host's name or by HyperPod's."""
    shown = scontrol(node.host, "show", "node", node.host.hostname(), "-o")
    if shown.code != 0 and "not found" in shown.out + shown.err:
        other = scontrol(node.host, "show", "node", node.identity.instance.name, "-o")
        return other if other.code == 0 else shown
    return shown


def _field(text: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", text)
    return found.group(1) if found else "UNKNOWN"


def _settle(host: Host, name: str, why: str, refused_since: List[float], settled: Tuple[str, ...]) -> None:
    """Resume a node that is down for a reason that this boot has settled; any other reason ends the wait."""
    if why.lower().startswith(settled):
        scontrol(host, "update", f"NodeName={name}", "State=RESUME")
        return
    refused_since[0] = refused_since[0] or host.now()
    if host.now() - refused_since[0] > REFUSAL_GRACE:
        raise StepError(f"the controller keeps this node down: {why}")


def _prolog_facts(node: Node) -> str:
    """Write the node's current devices and mounts, which hyperpod-prolog compares before each job."""
    group = node.identity.group
    name = group.gres_name
    prefix, found = accelerators.DEVICES.get(name, ""), accelerators.found(node.host, name)
    pattern = f"{prefix}[0-9]*" if prefix else ""
    facts = f"shared='{node.parameters.fsx_mount}'\ndevices={found}\npattern='{pattern}'\nscratch='/scratch'\n"
    return facts + (f"containers='{containers.USERS}'\n" if node.parameters.containers else "")

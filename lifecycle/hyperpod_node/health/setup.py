"""Prepares a worker for its health checks, which run without the lifecycle folder: the node's facts, and users' checks.

On Slurm slurmd runs them (slurm/conf.py). On EKS a timer does, and node-problem-detector reads the findings.
"""

from __future__ import annotations

from ..facts import node_record
from ..facts.model import Node, NodeRecord, Probe
from ..host import units
from ..host.errors import Skip
from ..host.host import Host
from ..system import programs
from . import own

# SuccessExitStatus: a node that is bad is no failure of the unit. The checks take 45 s at most, and Kubernetes' answers
# as long. On EKS's nodes the state is read every minute.
SERVICE = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Checks this node's health

[Service]
Type=oneshot
ExecStart={bin}/hyperpod-health
SuccessExitStatus=1
TimeoutStartSec=120
Nice=10
"""
TIMER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Checks this node's health every five minutes

[Timer]
OnBootSec=60
OnUnitActiveSec=300
RandomizedDelaySec=30

[Install]
WantedBy=timers.target
"""


def run(node: Node) -> str:
    """Step ``health``."""
    if node.role != "worker":
        raise Skip("for workers; HyperPod looks after the others")
    host, parameters = node.host, node.parameters
    if parameters.orchestrator == "eks":
        # On Slurm step ``environment`` does, which knows the transport too.
        node_record.write(host, NodeRecord(parameters, node.identity.instance, "", Probe(0, None, "not looked for")))
    count = _own_checks(host)
    if parameters.orchestrator == "eks":
        _timer(node)
    return f"policy {parameters.health_policy}" + (f", {count} own checks" if count else "")


def _own_checks(host: Host) -> int:
    """Install the user's checks: S3 keeps no file modes, and HyperPod's download folder does not last."""
    source, target = host.settings.source / own.FOLDER, f"{host.settings.install_folder}/{own.FOLDER}"
    shipped = {path.name: path for path in source.iterdir() if path.is_file()} if source.is_dir() else {}
    for name, path in sorted(shipped.items()):
        host.write_bytes(f"{target}/{name}", path.read_bytes(), mode=0o755)
    there = host.path(target)
    for path in list(there.iterdir()) if there.is_dir() else []:
        if path.name not in shipped:
            host.remove(f"{target}/{path.name}")
    return len(shipped)


def _timer(node: Node) -> None:
    host = node.host
    programs.libraries(host, ("hyperpod_node",))
    programs.command(host, "hyperpod-health")
    folder = host.settings.install_folder + "/bin"
    host.write(f"{units.UNITS}/hyperpod-health.service", SERVICE.format(bin=folder))
    host.write(f"{units.UNITS}/hyperpod-health.timer", TIMER)
    units.start(node.host, "hyperpod-health.timer")

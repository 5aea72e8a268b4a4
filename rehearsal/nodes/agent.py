"""What HyperPod's agent does on a node: resource_config.json, slurm.conf, the MUNGE key, the lifecycle scripts."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ..account.provisioning import types_of
from .hosts import Host
from .stack import Stack

RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
LIFECYCLE_FOLDER = "/opt/ml/lifecycle"
SLURM_CONF = "/opt/slurm/etc/slurm.conf"
ENTRY_POINT = "on_create.sh"
# Settings that HyperPod's agent writes, as far as Debian's Slurm supports them. Cgroups belong to the machine, not to a
# host. The topology has no map yet, and the included files are empty (both as users of HyperPod reported in 2026).
_SLURM_CONF = """# Made by HyperPod.
ClusterName={cluster}
{controllers}
AuthType=auth/munge
CryptoType=crypto/munge
SlurmUser=slurm
SlurmctldPort=6817
SlurmdPort=6818
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
ReturnToService=2
InactiveLimit=0
Waittime=0
TopologyPlugin={plugin}
Include accounting.conf

{nodes}
PartitionName=dev Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{partitions}
"""
_ACCOUNTING_CONF = "# No accounting.\n"
# Cgroups belong to the machine, not to a host, so Slurm does not use them here.
_CGROUP_CONF = "CgroupPlugin=disabled\n"


@dataclass
class Agent:
    """One cluster's agent. ``munge_key``: the key that every node gets; empty for none.

    ``leaf``: the workers that a switch of the made-up network has; 0 leaves the map empty, as users of HyperPod
    reported of types that AWS's announcement names. ``blocks``: the switches are UltraServers.
    """

    stack: Stack
    munge_key: bytes = field(default_factory=lambda: secrets.token_bytes(128))
    leaf: int = 0
    blocks: bool = False

    def resource_config(self, hosts: Iterable[Host]) -> str:
        """The file as HyperPod writes it, for the cluster's current hosts."""
        groups: dict[str, list[Host]] = {}
        for host in hosts:
            groups.setdefault(host.group, []).append(host)
        document = {
            "ClusterConfig": {"ClusterName": self.stack.cluster_name, "ClusterArn": self.stack.cluster_arn},
            "InstanceGroups": [
                {
                    "Name": name,
                    "InstanceType": types_of(self.stack.groups[name])[0],
                    "Instances": [
                        {
                            "InstanceName": host.name,
                            "AgentIpAddress": f"172.16.{host.address.split('.', 2)[2]}",
                            "CustomerIpAddress": host.address,
                            "InstanceId": host.instance_id,
                        }
                        for host in members
                    ],
                }
                for name, members in groups.items()
            ],
        }
        return json.dumps(document, indent=2)

    def slurm_conf(self, hosts: Iterable[Host]) -> str:
        """The controller's slurm.conf. It lists login nodes too (awsome-distributed-ai, hyperpod-mental-model.md)."""
        hosts = list(hosts)
        heads = [host for host in hosts if host.role == "controller"]
        plugin = "topology/block" if self.blocks else "topology/tree"
        if self.stack.config.settings.slurm.by_image and not self.leaf:
            # No slurmctld of the image's would start without a map.
            plugin = "topology/default"
        return _SLURM_CONF.format(
            plugin=plugin,
            cluster=self.stack.cluster_name,
            controllers="\n".join(f"SlurmctldHost={host.hostname}({host.address})" for host in heads),
            nodes="\n".join(_node_line(host) for host in hosts if host.role != "controller"),
            partitions="\n".join(self._partition_lines(hosts)),
        )

    def topology_conf(self, hosts: Iterable[Host]) -> str:
        """The map as the agent maintains it (AWS, "automatic Slurm topology management"; topology.conf(5))."""
        names = [host.hostname for host in hosts if host.role == "worker"]
        groups = [names[start : start + self.leaf] for start in range(0, len(names), self.leaf)]
        kind = "Block" if self.blocks else "Switch"
        lines = [f"{kind}Name=nn-{number} Nodes={','.join(group)}" for number, group in enumerate(groups)]
        if self.blocks:
            return "\n".join([*lines, f"BlockSizes={self.leaf}"]) + "\n"
        return "\n".join([*lines, f"SwitchName=nn-top Switches=nn-[0-{len(groups) - 1}]"]) + "\n"

    def _partition_lines(self, hosts: Iterable[Host]) -> list[str]:
        """The partitions that the groups name. Every node is also in "dev"."""
        members: dict[str, list[str]] = {}
        for host in hosts:
            for name in self.stack.groups[host.group]["slurmConfig"].get("partitionNames") or ():
                members.setdefault(name, []).append(host.hostname)
        return [f"PartitionName={name} Nodes={','.join(nodes)} State=UP" for name, nodes in members.items()]

    def prepare(self, host: Host, hosts: Iterable[Host]) -> None:
        """Write the files that a node has before its lifecycle script starts."""
        host.write(RESOURCE_CONFIG, self.resource_config(hosts))
        if self.stack.config.settings.orchestrator == "eks":
            return
        host.write("/opt/slurm/etc/cgroup.conf", _CGROUP_CONF)
        if host.role == "controller":
            host.write(str(PurePosixPath(SLURM_CONF).with_name("accounting.conf")), _ACCOUNTING_CONF, owner="slurm")
            self.map(host, hosts)
            host.write(SLURM_CONF, self.slurm_conf(hosts), owner="slurm")
        if self.munge_key:
            host.write("/etc/munge/munge.key", self.munge_key, mode=0o400, owner="munge")

    def map(self, head: Host, hosts: Iterable[Host]) -> None:
        """Write the controller's map of the network, where there is one."""
        if self.leaf:
            path = PurePosixPath(SLURM_CONF).with_name("topology.conf")
            head.write(str(path), self.topology_conf(hosts), owner="slurm")

    def replace_node(self, gone: Host, fresh: Host, hosts: Iterable[Host]) -> None:
        """Tell the other nodes about a replacement: update both files, and have slurmctld reread its configuration.

        Lines that others added to slurm.conf stay.
        """
        hosts = list(hosts)
        self.tell(hosts)
        if fresh.role == "controller":
            # Its own slurm.conf already lists it.
            return
        for head in (host for host in hosts if host.role == "controller"):
            line = rf"^NodeName={re.escape(gone.hostname)} .*$"
            changed = re.sub(line, _node_line(fresh), head.read(SLURM_CONF), flags=re.M)
            for partition in self._partition_lines(hosts):
                changed = re.sub(rf"^{partition.split()[0]} .*$", partition, changed, flags=re.M)
            head.write(SLURM_CONF, changed, owner="slurm")
            head.run(["scontrol", "reconfigure"])

    def forget(self, gone: Host, hosts: Iterable[Host]) -> None:
        """Tell the other nodes that one has left for good: its line goes, and its name from every partition."""
        hosts = list(hosts)
        self.tell(hosts)
        for head in (host for host in hosts if host.role == "controller"):
            text = re.sub(rf"^NodeName={re.escape(gone.hostname)} .*\n", "", head.read(SLURM_CONF), flags=re.M)
            for partition in self._partition_lines(hosts):
                text = re.sub(rf"^{partition.split()[0]} .*$", partition, text, flags=re.M)
            head.write(SLURM_CONF, text, owner="slurm")
            head.run(["scontrol", "reconfigure"])

    def tell(self, hosts: Iterable[Host]) -> None:
        """Give every running node the cluster's current state."""
        hosts = list(hosts)
        text = self.resource_config(hosts)
        for host in hosts:
            if host.running:
                host.write(RESOURCE_CONFIG, text)

    def announce(self, hosts: Iterable[Host], *, whole: bool) -> None:
        """Add the nodes that have joined to slurm.conf: append lines, or write the file anew without others' lines."""
        hosts = list(hosts)
        for head in (host for host in hosts if host.role == "controller"):
            text = head.read(SLURM_CONF)
            lines = [_node_line(host) for host in hosts if host.role != "controller"]
            # Before the first partition, which contains all nodes.
            place = text.index("PartitionName=")
            added = "".join(f"{line}\n" for line in lines if f"{line.split()[0]} " not in text)
            text = text[:place] + added + text[place:]
            for partition in self._partition_lines(hosts):
                changed = re.sub(rf"^{partition.split()[0]} .*$", partition, text, flags=re.M)
                text = changed if partition in changed else f"{text}{partition}\n"
            head.write(SLURM_CONF, self.slurm_conf(hosts) if whole else text, owner="slurm")
            head.run(["scontrol", "reconfigure"])


def _node_line(host: Host) -> str:
    return f"NodeName={host.hostname} NodeAddr={host.address} CPUs={max(1, host.machine.kind.vcpus)} State=UNKNOWN"


class Lifecycle:
    """A run of the lifecycle script on one host. Its output is appended to ``lines`` as it arrives."""

    def __init__(self, host: Host, files: Mapping[str, bytes], environment: Mapping[str, str] | None = None) -> None:
        self.host, self.lines = host, list[str]()
        self.code: int | None = None
        self.began = self.ended = 0.0
        self._files, self._environment = files, dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Copy the files as S3 delivers them, without file modes, and start the entry point as root."""
        for name, content in self._files.items():
            self.host.write(str(PurePosixPath(LIFECYCLE_FOLDER) / name), content)
        self.began = time.monotonic()
        if ENTRY_POINT not in self._files:
            self.lines.append(f"lifecycle script {ENTRY_POINT} is not in the source bucket")
            self.code, self.ended = 127, self.began
            return
        self.host.path(f"{LIFECYCLE_FOLDER}/{ENTRY_POINT}").chmod(0o755)
        self._process = self.host.start([f"./{ENTRY_POINT}"], environment=self._environment, cwd=LIFECYCLE_FOLDER)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip("\n"))
        # The output closes when the script's last process ends; daemons have their own output.
        code = process.wait()
        self.ended = time.monotonic()
        self.code = code

    @property
    def seconds(self) -> float:
        """How long the script ran, or has been running."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def last_line(self) -> str:
        """The line of a failed script's output that HyperPod shows."""
        return next((line for line in reversed(self.lines) if line.strip()), "")

    def wait(self, timeout: float) -> int | None:
        """The exit code, or None if the script is still running."""
        if self._reader is not None:
            self._reader.join(timeout)
        return self.code

    def kill(self) -> None:
        """Kill the script and everything it started. The host's own services keep running."""
        if self._process is not None and self.code is None:
            # Only its process group: services that systemd started for it are in other groups.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(5)

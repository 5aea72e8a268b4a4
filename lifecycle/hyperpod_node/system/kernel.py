"""Kernel settings and limits that collectives over many sockets and pinned memory need, and their stability: programs
that run jobs are not upgraded, restarted or cleaned up at night.
"""

from __future__ import annotations

from typing import Dict, List

from ..facts.model import Node
from ..host import units

# Socket buffers of 512 MiB, a long device backlog and no slow start after idle: a training step is silent, then sends
# gigabytes at once. They are upper bounds, so they cost nothing where they are not used.
SYSCTL: Dict[str, str] = {
    "net.core.rmem_max": "536870912",
    "net.core.wmem_max": "536870912",
    "net.core.netdev_max_backlog": "300000",
    "net.core.somaxconn": "4096",
    "net.ipv4.tcp_rmem": "4096 87380 536870912",
    "net.ipv4.tcp_wmem": "4096 65536 536870912",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    # In world-writable folders (/tmp, /scratch) no user can make root, or anybody else, write to the user's link or
    # file (kernel documentation, admin-guide/sysctl/fs.rst). Distributions set most of these, but not all to the
    # strictest value.
    "fs.protected_symlinks": "1",
    "fs.protected_hardlinks": "1",
    "fs.protected_fifos": "2",
    "fs.protected_regular": "2",
}
# Amazon EC2 User Guide, "Network maximum transmission unit (MTU)": jumbo frames, bytes.
MTU = 9001
SYSCTL_FILE = "/etc/sysctl.d/90-hyperpod.conf"

# RDMA pins memory, and NCCL opens a socket per channel and peer.
LIMITS_FILE = "/etc/security/limits.d/90-hyperpod.conf"
LIMITS = """# Made by the HyperPod lifecycle scripts.
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
* soft stack unlimited
* hard stack unlimited
root soft memlock unlimited
root hard memlock unlimited
root soft nofile 1048576
root hard nofile 1048576
"""

# Packages that unattended-upgrades must leave alone, on nodes with apt: Python's regular expressions for the beginning
# of a name. It would install new kernels but no Lustre client, without which a node has no /fsx after a reboot
# (aws-parallelcluster, issue 2095); and a new client would bring its kernel (awsome-distributed-ai,
# hold-lustre-client.sh). A driver whose library is newer than its module ends every new process on the GPUs, and a new
# slurmd, MUNGE or container runtime starts again under its jobs. An update of the cluster's software brings all of
# them.
APT_FOLDER, APT_NAME = "/etc/apt/apt.conf.d", "52hyperpod"
HELD = (
    "linux-(aws|image|headers|modules)",
    "lustre-client-",
    "(lib)?nvidia-",
    "(lib)?cuda",
    "libnccl",
    "datacenter-gpu-manager",
    "aws-neuronx-",
    "efa",
    "libfabric",
    "rdma-core",
    "(lib)?ibverbs",
    "openmpi",
    "(lib)?slurm",
    "(lib)?munge",
    "(docker|containerd|runc|nerdctl|kubelet|enroot)",
)
APT = (
    """// Made by the HyperPod lifecycle scripts.
Unattended-Upgrade::Package-Blacklist {
"""
    + "".join(f'    "{pattern}";\n' for pattern in HELD)
    + "};\n"
)
# needrestart restarts every program that uses an upgraded library, such as libc, and with slurmd its jobs end
# (awsome-distributed-ai, pull request 1165). It only names the services listed here (its ex/needrestart.conf, "Override
# service default selection").
NEEDRESTART_FOLDER, NEEDRESTART_NAME = "/etc/needrestart/conf.d", "52-hyperpod.conf"
NEEDRESTART = """# Made by the HyperPod lifecycle scripts.
$nrconf{override_rc}->{qr(^(slurm(d|ctld|dbd)|munge|mariadb|docker|containerd|kubelet|nvidia-|hyperpod-))} = 0;
"""
# By default logind removes a user's shared memory when their last session ends, and NCCL's with it, though one of their
# jobs still runs (logind.conf(5), RemoveIPC; NVIDIA NCCL User Guide, "Troubleshooting", "Systemd").
LOGIND_FOLDER, LOGIND_NAME = "/etc/systemd/logind.conf.d", "90-hyperpod.conf"
LOGIND = "# Made by the HyperPod lifecycle scripts.\n[Login]\nRemoveIPC=no\n"


def run(node: Node) -> str:
    """Step ``kernel``."""
    host = node.host
    if host.path(APT_FOLDER).is_dir():
        host.write(f"{APT_FOLDER}/{APT_NAME}", APT)
    if host.path(NEEDRESTART_FOLDER).is_dir():
        host.write(f"{NEEDRESTART_FOLDER}/{NEEDRESTART_NAME}", NEEDRESTART)
    if host.write(f"{LOGIND_FOLDER}/{LOGIND_NAME}", LOGIND) and units.exists(host, "systemd-logind"):
        # It reads its settings again, and no session ends (systemd, logind.c).
        host.run("systemctl", "kill", "--signal=HUP", "systemd-logind", check=False)
    lines = [f"{key} = {value}" for key, value in SYSCTL.items()]
    host.write(SYSCTL_FILE, "# Made by the HyperPod lifecycle scripts.\n" + "\n".join(lines) + "\n")
    host.write(LIMITS_FILE, LIMITS)
    absent, refused = _apply(node)
    if refused:
        node.warn(f"the kernel refused {', '.join(refused)}")
    return _mtu(node) + (f"; this kernel has no {', '.join(absent)}" if absent else "")


def _apply(node: Node) -> "tuple[List[str], List[str]]":
    """Set what differs, without a command per key. Return the keys that the kernel lacks, and those it refused."""
    absent, refused = [], []
    for key, value in SYSCTL.items():
        name = "/proc/sys/" + key.replace(".", "/")
        current = node.host.read(name)
        if current is None:
            absent.append(key)
        elif current.split() != value.split():
            try:
                node.host.path(name).write_text(value + "\n", encoding="ascii")
            except OSError:
                refused.append(key)
    return absent, refused


def _mtu(node: Node) -> str:
    interface = node.host.default_interface()
    if interface is None:
        node.warn("there is no default route")
        return "no default route"
    mtu, wanted = node.host.mtu(interface), MTU
    if mtu is not None and mtu < wanted:
        node.warn(f"{interface} has an MTU of {mtu}, not {wanted}: every large message costs more packets")
    return f"{interface} MTU {mtu}"

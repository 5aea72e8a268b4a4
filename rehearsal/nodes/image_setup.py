"""What HyperPod's image does on a node with OnInitComplete: AMI-based configuration.

By SageMaker Developer Guide, "Getting started with SageMaker HyperPod using the AWS CLI", which lists what it includes:
Slurm's daemons, Docker, Enroot, Pyxis, accounting with MariaDB on the controller, ssh keys of ubuntu's, whose home is
on the shared file system, and the file systems of InstanceStorageConfigs. The script comes after it (CloudFormation,
ClusterLifeCycleConfig) or beside it (awsome-distributed-ai, Extensions/detect-node): both are played. How the image
goes about it is not published. Here it does as AWS's own lifecycle scripts do (awsome-distributed-ai, base-config).
"""

import threading
from collections.abc import Iterable
from typing import Literal

from .hosts import Host
from .sandbox import SandboxError
from .stack import Stack

# Whether the script starts when the image is done, or while it is at it.
Order = Literal["after", "beside"]
# Seconds by which a script is ahead of an image that is beside it.
AHEAD = 3.0
_ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={host}
AccountingStoragePort=6819
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=30
"""
_SLURMDBD_CONF = """AuthType=auth/munge
DbdHost={host}
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""
_SLURMDBD = """[Unit]
Description=Slurm database daemon
After=munge.service mariadb.service

[Service]
ExecStart=/opt/slurm/sbin/slurmdbd -D -s
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
_RESTART = "[Unit]\nStartLimitIntervalSec=0\n\n[Service]\nRestart=always\nRestartSec=2\n"
_SQL = """CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""
_HOME = """
mkdir -p {home} && chown ubuntu: {home} && usermod -d {home} ubuntu
test -e {home}/.ssh/id_rsa || runuser -u ubuntu -- bash -c 'umask 077; mkdir -p {home}/.ssh
  ssh-keygen -q -t rsa -N "" -f {home}/.ssh/id_rsa && cat {home}/.ssh/id_rsa.pub >> {home}/.ssh/authorized_keys'
"""
_DATABASE = """
systemctl enable --now mariadb
systemctl enable --now slurmdbd
until ss -ltn | grep -q :6819; do sleep 0.1; done
"""


class Image:
    """The image of one cluster's nodes. ``order``: when the scripts start."""

    def __init__(self, stack: Stack, order: Order) -> None:
        self._stack, self.order, self._one = stack, order, threading.Lock()
        self._beside: list[threading.Thread] = []
        self._left_out: set[str] = set()

    def leave_out(self, point: str) -> None:
        """From now on the image fails to mount a file system there, and says nothing."""
        self._left_out.add(point)

    def configure(self, host: Host, controllers: Iterable[str]) -> None:
        """Do the image's part, now or a moment later. ``controllers``: their addresses."""
        if self.order == "after":
            self._configure(host, tuple(controllers))
            return
        later = threading.Timer(AHEAD, self._configure, (host, tuple(controllers)))
        self._beside.append(later)
        later.start()

    def _configure(self, host: Host, controllers: tuple[str, ...]) -> None:
        shell(host, "systemctl enable --now munge")
        home = "/fsx/ubuntu" if "/fsx" not in self._left_out else "/home/ubuntu"
        for config in self._stack.groups[host.group].get("instanceStorageConfigs") or ():
            if any(volume["mountPath"] in self._left_out for volume in config.values() if "mountPath" in volume):
                continue
            if lustre := config.get("fsxLustreConfig"):
                source = f"{lustre['dnsName']}@tcp:/{lustre['mountName']}"
                _mount(host, source, lustre["mountPath"], "lustre", "noatime,flock")
            elif zfs := config.get("fsxOpenZfsConfig"):
                _mount(host, f"{zfs['dnsName']}:/fsx", zfs["mountPath"], "nfs", "nfsvers=4.1")
                home = f"{zfs['mountPath']}/ubuntu"
        with self._one:
            # Nodes share the folder.
            shell(host, _HOME.format(home=home))
        if host.role == "controller":
            self._controller(host)
        elif host.role == "worker":
            options = f"SLURMD_OPTIONS=--conf-server {','.join(controllers)}\n"
            host.write("/etc/default/slurmd", options)
            host.write("/etc/systemd/system/slurmd.service.d/image.conf", _RESTART)
            shell(host, "systemctl daemon-reload; systemctl enable --now --no-block slurmd")

    @staticmethod
    def _controller(host: Host) -> None:
        host.write("/opt/slurm/etc/slurmdbd.conf", _SLURMDBD_CONF.format(host=host.hostname), mode=0o600, owner="slurm")
        host.write("/etc/systemd/system/slurmdbd.service", _SLURMDBD)
        shell(host, "systemctl daemon-reload; systemctl start mariadb")
        shell(host, "mariadb", text_in=_SQL)
        shell(host, _DATABASE)
        host.write("/opt/slurm/etc/accounting.conf", _ACCOUNTING.format(host=host.hostname), owner="slurm")
        shell(
            host,
            "systemctl enable --now slurmctld; until /opt/slurm/bin/scontrol ping | grep -q UP; do sleep 0.1; done",
        )

    def done(self) -> None:
        """Wait for what is beside a script."""
        for thread in self._beside:
            thread.join()


def shell(host: Host, command: str, text_in: str = "") -> None:
    """A command of the image's on a node. Raises SandboxError where it fails."""
    done = host.run(command, timeout=60, text_in=text_in)
    if done.returncode:
        what = " ".join(command.split())[:60]
        raise SandboxError(f"the image's `{what}` failed on {host.name}: {done.stderr.strip()}")


def _mount(host: Host, source: str, point: str, kind: str, options: str) -> None:
    line = f"{source} {point} {kind} {options},_netdev,x-systemd.automount 0 0"
    shell(host, f"mkdir -p {point}; echo '{line}' >>/etc/fstab; mount -t {kind} -o {options} {source} {point}")

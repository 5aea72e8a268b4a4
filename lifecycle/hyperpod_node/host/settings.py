"""Every path, command and time limit that the steps use, in one place."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping

# Seconds a step may wait for something outside the node. HYPERPOD_TIMEOUT_<NAME> in the environment overrides one.
TIMEOUTS: Mapping[str, float] = {
    # EC2 User Guide: instance metadata answers within milliseconds; a node under load may take longer.
    "imds": 5,
    # HyperPod's agent writes the file at once when nodes come and go.
    "resource-config": 30,
    # A Lustre file system takes about ten minutes, and may start after the cluster does.
    "fsx": 1800,
    "mount": 120,
    # AWS's pages disagree on whether OnInitComplete starts after the image's own set-up or at the same time.
    "image": 900,
    # A database of RDS takes about ten minutes, too, and its password may reach the controller's role a minute later.
    "database": 1800,
    "database-login": 180,
    # The controller may still be waiting for the file system when a worker is done with it.
    "controller": 900,
    "agent": 300,
    # A slurm.conf that names another host may be the image's, or right.
    "agent-names": 60,
    # Users of HyperPod have seen its first start take more than two minutes.
    "slurm": 300,
    "register": 300,
    # The daemon of a node under load; it answers within milliseconds.
    "munge": 20,
    # dlami-nvme.service has TimeoutStartSec=300.
    "image-disks": 310,
    # AWS's own script for EKS nodes (awsome-distributed-ai, on_create_main.sh) gives the data volume 60 s.
    "data-volume": 60,
    "aws": 60,
    "key": 300,
}


@dataclass(frozen=True)
class Settings:
    """The locations. ``root`` is the prefix of every path on the node's disk, so that tests need no real one."""

    root: Path = Path("/")
    source: Path = Path(__file__).resolve().parents[2]
    resource_config: str = "/opt/ml/config/resource_config.json"
    imds_url: str = "http://169.254.169.254"
    log_folder: str = "/var/log/hyperpod"
    lock: str = "/run/hyperpod-on-create.lock"
    state_folder: str = "/etc/hyperpod"
    install_folder: str = "/opt/hyperpod"
    slurm_etc: str = "/opt/slurm/etc"
    # Searched after PATH: a login shell has these folders, a lifecycle script does not.
    extra_path: str = "/opt/slurm/bin:/opt/slurm/sbin:/opt/aws/neuron/bin:/opt/amazon/efa/bin:/usr/sbin:/sbin"
    timeouts: Mapping[str, float] = field(default_factory=lambda: dict(TIMEOUTS))

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
        """Return the settings of a real node; HYPERPOD_RESOURCE_CONFIG, HYPERPOD_TIMEOUT_* and others override."""
        timeouts: Dict[str, float] = dict(TIMEOUTS)
        for name in timeouts:
            value = environment.get(f"HYPERPOD_TIMEOUT_{name.upper().replace('-', '_')}")
            if value:
                timeouts[name] = float(value)
        return Settings(
            resource_config=environment.get("HYPERPOD_RESOURCE_CONFIG", Settings.resource_config),
            imds_url=environment.get("HYPERPOD_IMDS_URL", Settings.imds_url),
            # Next to the log, which on_create.sh keeps.
            log_folder=str(Path(environment.get("HYPERPOD_LOG", Settings.log_folder + "/on_create.log")).parent),
            lock=environment.get("HYPERPOD_LOCK", Settings.lock),
            timeouts=timeouts,
        )

"""``hyperpod_parameters.json``: what the lifecycle scripts need to know, rendered from the configuration.

Not ``provisioning_parameters.json``: that is how Slurm was configured before the API could, HyperPod refuses a cluster
that has both, and writes one of its own next to the scripts (SageMaker Developer Guide, "Migrating to API-driven Slurm
configuration").
"""

from __future__ import annotations

import json
from typing import Any

from .config import Config, InstanceGroup
from .names import CLUSTER_ID_TAG, Names

FILE_NAME = "hyperpod_parameters.json"


def render(config: Config, names: Names) -> str:
    """The file's text. The file system is named by its tag alone: its id is not known before the nodes start, and they
    do not wait for it.
    """
    settings, net = config.settings, config.settings.network
    document: dict[str, Any] = {
        "orchestrator": settings.orchestrator,
        "cluster_id": names.cluster_id,
        "cluster_name": names.cluster,
        "region": names.region,
        "accelerator": settings.accelerator,
        "fsx": {
            "tag": {CLUSTER_ID_TAG: names.cluster_id},
            "mount_point": "/fsx",
            "efa": settings.fsx.efa,
        },
        "home": {"file_system_id": settings.fsx.home_file_system_id},
        "imds_v1": settings.imds_v1,
        "lost_after_seconds": settings.lost_node_seconds,
        "cidrs": [cidr for cidr in (net.cidr, net.secondary_cidr) if cidr] if not net.vpc_id else [],
        "ssh_public_key_parameter": f"/hyperpod/{names.cluster}/ssh-public-key" if settings.ssh_public_key else None,
        "instance_groups": [_group(config, group) for group in config.instance_groups],
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _group(config: Config, group: InstanceGroup) -> dict[str, Any]:
    row = group.type
    return {
        "name": group.name,
        "role": group.role,
        "count": group.count,
        "partition": config.accelerator.slurm_partition if group.role == "worker" else "",
        "instance_type": row.name,
        "accelerator": row.accelerator,
        "accelerator_model": row.accelerator_model,
        "accelerators": row.accelerators,
        "neuron_cores": row.neuron_cores,
        "gres": config.accelerator.slurm_gres if row.accelerator else "",
        "efa": row.efa,
        "efa_interfaces": row.efa_interfaces,
        "lustre_efa_interfaces": row.lustre_efa_interfaces,
        "rdma_read": row.rdma_read,
        "network_gbps": row.network_gbps,
        "nvme_disks": row.nvme_disks,
    }

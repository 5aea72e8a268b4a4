"""``provisioning_parameters.json``: what the lifecycle scripts need to know, rendered from the configuration."""

from __future__ import annotations

import json
from typing import Any

from .config import Config, InstanceGroup
from .names import CLUSTER_ID_TAG, Names

FILE_NAME = "provisioning_parameters.json"


def render(config: Config, names: Names) -> str:
    """The file's text.

    The first keys are the ones AWS's own lifecycle scripts read, under their names; ``hyperpod`` has the rest. The file
    system is named by its tag alone: its id is not known before the nodes start, and they do not wait for it.
    """
    groups = {role: [g for g in config.instance_groups if g.role == role] for role in ("controller", "login", "worker")}
    net = config.settings.network
    document: dict[str, Any] = {
        "version": "1.0.0",
        "workload_manager": config.settings.orchestrator,
        "worker_groups": [
            {"instance_group_name": group.name, "partition_name": config.accelerator.slurm_partition}
            for group in groups["worker"]
        ],
        "hyperpod": {
            "cluster_id": names.cluster_id,
            "cluster_name": names.cluster,
            "region": names.region,
            "accelerator": config.settings.accelerator,
            "fsx": {
                "tag": {CLUSTER_ID_TAG: names.cluster_id},
                "mount_point": "/fsx",
                "efa": config.settings.fsx.efa,
            },
            "home": {"file_system_id": config.settings.fsx.home_file_system_id},
            "imds_v1": config.settings.imds_v1,
            "cidrs": [cidr for cidr in (net.cidr, net.secondary_cidr) if cidr] if not net.vpc_id else [],
            "ssh_public_key_parameter": f"/hyperpod/{names.cluster}/ssh-public-key"
            if config.settings.ssh_public_key
            else None,
            "instance_groups": [_group(config, group) for group in config.instance_groups],
        },
    }
    for role, key in (("controller", "controller_group"), ("login", "login_group")):
        if groups[role]:
            document[key] = groups[role][0].name
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _group(config: Config, group: InstanceGroup) -> dict[str, Any]:
    row = group.type
    return {
        "name": group.name,
        "role": group.role,
        "count": group.count,
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
        "transport": row.transport,
        "nvme_disks": row.nvme_disks,
    }

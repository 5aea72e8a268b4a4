"""What slurm.conf needs for accounting, limits, fair share and preemption (slurm.conf(5))."""

from __future__ import annotations

from typing import Dict, List, Sequence

# Between them they order the queue: first the quality of service, then the share, and the longest wait among equals.
WEIGHTS = {"PriorityWeightQOS": 100_000, "PriorityWeightFairshare": 10_000, "PriorityWeightAge": 1_000}


def settings(host: str, kinds: Sequence[str]) -> Dict[str, str]:
    """Our settings, for a slurmdbd at this address. ``kinds``: the accelerators by their names in Slurm."""
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host,
        # Slurm reads no line without a value.
        **({"AccountingStorageTRES": ",".join(f"gres/{kind}" for kind in kinds)} if kinds else {}),
        # Both need an association: a job of somebody who has none is refused.
        "AccountingStorageEnforce": "limits,qos",
        "JobAcctGatherType": "jobacct_gather/linux",
        "PriorityType": "priority/multifactor",
        **{name: str(weight) for name, weight in WEIGHTS.items()},
        # A job that has to go returns to the queue, and the training scripts resume from their checkpoints.
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
    }


def partition_defaults(kinds: Sequence[str]) -> List[str]:
    """What use costs of a share: accelerators. By default it is CPUs, of which instance types have unlike numbers."""
    weights = ",".join(["CPU=0.001", *(f"GRES/{kind}=1.0" for kind in kinds)])
    return [f'PartitionName=DEFAULT TRESBillingWeights="{weights}"'] if kinds else []

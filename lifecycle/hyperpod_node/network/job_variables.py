"""The environment of a job's processes, by its node's transport and accelerator; for Slurm jobs and for pods.

NCCL_ALGO, NCCL_PROTO and NCCL_TREE_THRESHOLD are never set; NCCL chooses better. Nor are the sizes of its buffers: the
plugin for EFA sets them on the instance types for which it knows better ones (aws-ofi-nccl, doc/efa-env-var.md and
src/platform-aws.cpp). The Neuron runtime's asynchronous mode is off, as by default: it is gone in Neuron 2.31, and
before it may take too much memory (Neuron documentation, "Neuron Runtime Configuration").
"""

from __future__ import annotations

from typing import Dict, Optional

EFA_RDMA, EFA_SENDRECV, TCP = "efa-rdma", "efa-sendrecv", "tcp"


def for_job(transport: str, interface: Optional[str], accelerator: str, neuron_cores: int = 0) -> Dict[str, str]:
    """Return the variables. ``interface`` is the one with the default route, None if it is not known."""
    variables = {"HYPERPOD_TRANSPORT": transport}
    if transport == TCP:
        variables["NCCL_SOCKET_IFNAME"] = interface or "^docker,lo,veth"
    else:
        variables["FI_PROVIDER"] = "efa"
        variables["FI_EFA_USE_DEVICE_RDMA"] = "1" if transport == EFA_RDMA else "0"
        variables["NCCL_SOCKET_IFNAME"] = "^docker,lo,veth"
    variables["FI_EFA_FORK_SAFE"] = "1"
    if interface:
        variables["GLOO_SOCKET_IFNAME"] = interface
    if accelerator == "gpu":
        if transport == TCP:
            # Without it NCCL loads the plugin for EFA, whatever MPI's settings are, and waits for missing devices.
            variables["NCCL_NET_PLUGIN"] = "none"
        variables["NCCL_DEBUG"] = "WARN"
    if accelerator == "trainium":
        variables.update(
            NEURON_RT_NUM_CORES=str(neuron_cores),
            NEURON_CC_FLAGS="--model-type=transformer",
            NEURON_FUSE_SOFTMAX="1",
            NEURON_RT_STOCHASTIC_ROUNDING_EN="1",
            OMP_NUM_THREADS="1",
            MALLOC_ARENA_MAX="70",
        )
    return variables


def between_nodes(transport: str, accelerator: str) -> Dict[str, str]:
    """Return the additional variables of processes on several nodes: the only network that NCCL may use.

    If an image lacks EFA's plugin, NCCL silently uses TCP, which is slow; with the network's name it fails at once
    (NCCL documentation, "NCCL_NET"). aws-ofi-nccl accepts this name in all its releases
    (src/nccl_ofi_interface_nvidia.cpp). On one node an image without the plugin is as good as one with it.
    """
    return {"NCCL_NET": "AWS Libfabric"} if accelerator == "gpu" and transport != TCP else {}

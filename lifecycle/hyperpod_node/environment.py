"""Environment variables of login shells and of jobs, by the node's row of the catalogue and by what is found on it.

Jobs get theirs on the worker that runs them, from task.env through Slurm's TaskProlog: what a shell on the controller
has says nothing about a worker. NCCL_ALGO, NCCL_PROTO and NCCL_TREE_THRESHOLD are never set; NCCL chooses better.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Dict, List, Optional

from . import transport
from .errors import StepError
from .model import Group, Node

BEGIN, END = "# hyperpod begin", "# hyperpod end"
PATHS = (
    "/opt/slurm/bin",
    "/opt/slurm/sbin",
    "/opt/amazon/openmpi/bin",
    "/opt/amazon/efa/bin",
    "/opt/aws/neuron/bin",
    "/opt/hyperpod/bin",
)
LIBRARIES = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/efa/lib",
    "/opt/amazon/openmpi/lib",
    "/usr/local/cuda/lib64",
    "/opt/aws/neuron/lib",
)
NEURON_LS = "/opt/aws/neuron/bin/neuron-ls"


def run(node: Node) -> str:
    """Step ``environment``."""
    host, group = node.host, node.identity.group
    # Head nodes run no training; a device there would change nothing.
    found = transport.probe(node) if group.accelerators else transport.Probe(0, None, "not looked for")
    node.transport, complaints = transport.decide(group, found)
    for complaint in complaints:
        node.warn(complaint)
    variables = _variables(node, group)
    folder = host.settings.state_folder
    host.write(f"{folder}/task.env", "".join(f"{name}={value}\n" for name, value in variables.items()))
    host.write(f"{folder}/node.json", _facts(node, found))
    host.write("/etc/profile.d/hyperpod.sh", profile(variables))
    _etc_environment(node, variables)
    return f"transport {node.transport}, {len(variables)} variables" if group.accelerators else "head node, paths only"


def _variables(node: Node, group: Group) -> Dict[str, str]:
    """What a job's process on this node gets."""
    if not group.accelerators:
        return {}
    interface = node.host.default_interface() or ""
    variables = {"HYPERPOD_TRANSPORT": node.transport}
    if node.transport == transport.TCP:
        variables["NCCL_SOCKET_IFNAME"] = interface or "^docker,lo,veth"
    else:
        variables["FI_PROVIDER"] = "efa"
        variables["FI_EFA_USE_DEVICE_RDMA"] = "1" if node.transport == transport.EFA_RDMA else "0"
        variables["NCCL_SOCKET_IFNAME"] = "^docker,lo,veth"
    variables["FI_EFA_FORK_SAFE"] = "1"
    if interface:
        variables["GLOO_SOCKET_IFNAME"] = interface
    if group.accelerator == "gpu":
        if node.transport == transport.TCP:
            # Without it NCCL loads the plugin for EFA, whatever MPI was told, and waits for devices that are not there.
            variables["NCCL_NET_PLUGIN"] = "none"
        variables.update(NCCL_DEBUG="WARN", NCCL_BUFFSIZE="8388608", NCCL_P2P_NET_CHUNKSIZE="524288")
        _check_gpus(node, group)
    if group.accelerator == "trainium":
        variables.update(_neuron(node, group))
    return variables


def _check_gpus(node: Node, group: Group) -> None:
    """By device files: the driver's own tool takes seconds on a fresh node."""
    found = len([p for p in node.host.path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
    if found != group.accelerators:
        node.warn(f"{found} of {group.accelerators} GPUs in /dev")


def _neuron(node: Node, group: Group) -> Dict[str, str]:
    cores = neuron_cores(node)
    if cores is None:
        node.warn(f"neuron-ls told nothing; NeuronCores by the catalogue: {group.neuron_cores}")
        cores = group.neuron_cores
    # Trainium2 joins two physical cores into a logical one by default; some releases of neuron-ls count the former.
    elif cores != group.neuron_cores and not (
        group.accelerator_model == "Trainium2" and cores == 2 * group.neuron_cores
    ):
        node.warn(
            f"neuron-ls shows {cores} NeuronCores, the catalogue has {group.neuron_cores} for {group.instance_type}"
        )
        cores = min(cores, group.neuron_cores)
    else:
        cores = group.neuron_cores
    return {
        "NEURON_RT_NUM_CORES": str(cores),
        "NEURON_CC_FLAGS": "--model-type=transformer",
        "NEURON_FUSE_SOFTMAX": "1",
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "5",
        "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "70",
    }


def neuron_cores(node: Node) -> Optional[int]:
    """NeuronCores that neuron-ls shows, None when it cannot be asked."""
    command = NEURON_LS if node.host.path(NEURON_LS).exists() else "neuron-ls"
    try:
        result = node.host.run(command, "--json-output", check=False, timeout=30)
        devices = json.loads(result.out) if result.code == 0 else []
        return sum(int(device["nc_count"]) for device in devices) or None
    except (StepError, ValueError, KeyError, TypeError):
        return None


def _facts(node: Node, found: transport.Probe) -> str:
    """What the commands on this node, and those that ask it through Slurm, need to know."""
    parameters, identity = node.parameters, node.identity
    document = {
        "cluster_id": parameters.cluster_id,
        "cluster_name": parameters.cluster_name,
        "region": parameters.region,
        "accelerator": parameters.accelerator,
        "shared": node.shared,
        "mount_point": parameters.fsx_mount,
        "role": identity.role,
        "group": dataclasses.asdict(identity.group),
        "groups": [dataclasses.asdict(group) for group in parameters.groups.values()],
        "transport": node.transport,
        "probe": dataclasses.asdict(found),
        "instance_id": identity.instance.instance_id,
        "address": identity.instance.address,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def profile(variables: Dict[str, str]) -> str:
    """/etc/profile.d/hyperpod.sh: paths that exist, and variables that are not set already."""
    lines = ["# Made by the HyperPod lifecycle scripts.", "# shellcheck shell=sh"]
    for name, folders in (("PATH", PATHS), ("LD_LIBRARY_PATH", LIBRARIES)):
        lines.append(f"for _hyperpod_dir in {' '.join(folders)}; do")
        lines.append(f'  case ":${{{name}:-}}:" in *":$_hyperpod_dir:"*) continue ;; esac')
        lines.append(f'  if [ -d "$_hyperpod_dir" ]; then export {name}="${{{name}:+${name}:}}$_hyperpod_dir"; fi')
        lines.append("done")
    lines.append("unset _hyperpod_dir")
    lines += [f'export {name}="${{{name}:-{value}}}"' for name, value in variables.items()]
    return "\n".join(lines) + "\n"


def _etc_environment(node: Node, variables: Dict[str, str]) -> None:
    """Our block of /etc/environment; the rest of the file is others'."""
    name = "/etc/environment"
    kept: List[str] = []
    inside = False
    for line in (node.host.read(name) or "").splitlines():
        if line == BEGIN:
            inside = True
        elif line == END:
            inside = False
        elif not inside:
            kept.append(line)
    block = [BEGIN, *(f'{key}="{value}"' for key, value in variables.items()), END] if variables else []
    node.host.write(name, "\n".join([*kept, *block]) + ("\n" if kept or block else ""))

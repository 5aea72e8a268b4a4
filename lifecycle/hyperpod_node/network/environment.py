"""Environment variables of login shells and of jobs, by the node's row of the catalogue and its devices.

Jobs get theirs on the worker that runs them, from task.env, and in steps of several nodes from task-nodes.env too,
through Slurm's TaskProlog: a shell's variables on the controller say nothing about a worker.
"""

from __future__ import annotations

import json
from typing import Dict, List, Optional

from ..facts import node_record
from ..facts.model import MLFLOW_CONFIG, Group, Node, NodeRecord, Probe
from ..host import accelerators
from ..host.errors import StepError
from . import job_variables, transport

BEGIN, END = "# hyperpod begin", "# hyperpod end"
PATHS = (
    "/opt/slurm/bin",
    "/opt/slurm/sbin",
    "/opt/amazon/openmpi/bin",
    "/opt/amazon/efa/bin",
    "/opt/aws/neuron/bin",
    "/opt/hyperpod/bin",
)
# Without CUDA's: pip's PyTorch brings its own, and the loader would take these first, whatever their release
# (pytorch/pytorch, issue 111469; infiniflow/ragflow, issue 4466: "undefined symbol: __nvJitLinkAddData_12_1"). An
# installation of CUDA registers with the loader through ld.so.conf.
LIBRARIES = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/efa/lib",
    "/opt/amazon/openmpi/lib",
    "/opt/aws/neuron/lib",
)
NEURON_LS = "/opt/aws/neuron/bin/neuron-ls"


def run(node: Node) -> str:
    """Step ``environment``."""
    host, group = node.host, node.identity.group
    # Head nodes run no training, so their devices do not matter.
    found = transport.probe(node) if group.accelerators else Probe(0, None, "not looked for")
    node.transport, complaints = transport.decide(group, found)
    for complaint in complaints:
        node.warn(complaint)
    variables = _variables(node, group)
    folder = host.settings.state_folder
    host.write(f"{folder}/task.env", _lines(variables))
    host.write(f"{folder}/task-nodes.env", _lines(job_variables.between_nodes(node.transport, group.accelerator)))
    node_record.write(host, NodeRecord(node.parameters, node.identity.instance, node.transport, found))
    host.write("/etc/profile.d/hyperpod.sh", profile(variables))
    _etc_environment(node, variables)
    return (
        f"transport {node.transport}, {len(variables)} variables"
        if group.accelerators
        else "no accelerators, paths only"
    )


def _lines(values: Dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _variables(node: Node, group: Group) -> Dict[str, str]:
    """Return the variables of a job's process on this node."""
    if not group.accelerators:
        return {}
    cores = 0
    if group.accelerator == "gpu":
        _check_gpus(node, group)
    if group.accelerator == "trainium":
        cores = _usable_cores(node, group)
    variables = job_variables.for_job(node.transport, node.host.default_interface(), group.accelerator, cores)
    if mlflow := node.parameters.mlflow:
        config = f"{node.host.settings.state_folder}/{MLFLOW_CONFIG}"
        variables.update(MLFLOW_TRACKING_URI=mlflow.app, HYPERPOD_MLFLOW_AWS_CONFIG=config)
    return variables


def _check_gpus(node: Node, group: Group) -> None:
    """Count GPUs by device files: the driver's own tool takes seconds on a fresh node."""
    found = accelerators.found(node.host, "gpu")
    if found != group.accelerators:
        node.warn(f"{found} of {group.accelerators} GPUs in /dev")


def _usable_cores(node: Node, group: Group) -> int:
    cores = neuron_cores(node)
    if cores is None:
        node.warn(f"neuron-ls returned no data; NeuronCores by the catalogue: {group.neuron_cores}")
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
    return cores


def neuron_cores(node: Node) -> Optional[int]:
    """Return the NeuronCores that neuron-ls shows, None if it does not answer."""
    command = NEURON_LS if node.host.path(NEURON_LS).exists() else "neuron-ls"
    try:
        devices = json.loads(node.host.run(command, "--json-output").out)
        return sum(int(device["nc_count"]) for device in devices) or None
    except (StepError, ValueError, KeyError, TypeError):
        return None


def profile(values: Dict[str, str]) -> str:
    """Return /etc/profile.d/hyperpod.sh: paths that exist, and variables that are not set already."""
    lines = ["# Made by the HyperPod lifecycle scripts.", "# shellcheck shell=sh"]
    for name, folders in (("PATH", PATHS), ("LD_LIBRARY_PATH", LIBRARIES)):
        lines.append(f"for _hyperpod_dir in {' '.join(folders)}; do")
        lines.append(f'  case ":${{{name}:-}}:" in *":$_hyperpod_dir:"*) continue ;; esac')
        lines.append(f'  if [ -d "$_hyperpod_dir" ]; then export {name}="${{{name}:+${name}:}}$_hyperpod_dir"; fi')
        lines.append("done")
    lines.append("unset _hyperpod_dir")
    lines += [f'export {name}="${{{name}:-{value}}}"' for name, value in values.items()]
    return "\n".join(lines) + "\n"


def outside(text: str, begin: str, end: str) -> List[str]:
    """Return the lines of a file that are not ours: all but those between these two, and the two."""
    kept: List[str] = []
    inside = False
    for line in text.splitlines():
        if line == begin:
            inside = True
        elif line == end:
            inside = False
        elif not inside:
            kept.append(line)
    return kept


def _etc_environment(node: Node, values: Dict[str, str]) -> None:
    """Write our block of /etc/environment; the rest of the file belongs to others."""
    name = "/etc/environment"
    kept = outside(node.host.read(name) or "", BEGIN, END)
    block = [BEGIN, *(f'{key}="{value}"' for key, value in values.items()), END] if values else []
    node.host.write(name, "\n".join([*kept, *block]) + ("\n" if kept or block else ""))

"""``diagnose``: one archive of what somebody who helps would ask for, without secrets."""

import base64
import binascii
import gzip
import io
import json
import re
import secrets
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from .. import records
from ..failures import Failure, bad_input, described
from ..target import Target
from . import node_logs, sessions
from . import nodes as cluster_nodes
from .node import Node
from .secrets import without_secrets

# One section of a node ends after so many seconds, and its last bytes are kept.
_SECTION_SECONDS, _SECTION_BYTES = 20, 256 * 1024
_NODE_SECONDS = 600.0
_MOST_NODES = 8
# Another one each time, so that no log and no job's name can have it.
MARK = f"@@section-{secrets.token_hex(8)}"
_OF_SLURM = "command -v scontrol > /dev/null || exit 0; "
_UNITS = "-u slurmd -u slurmctld -u munge -u kubelet -u containerd -u 'hyperpod*' -u amazon-ssm-agent"
# What is collected on a node, by name. The arguments of processes are left out: people put secrets there.
SECTIONS: Mapping[str, str] = {
    "system": "cat /etc/os-release; uname -a; uptime; nproc; free -m",
    "packages": "dpkg-query -W 2> /dev/null || rpm -qa | sort; cat /opt/amazon/efa_installed_packages",
    "record": "tail -n +1 /etc/hyperpod/node.json /etc/hyperpod/task.env /var/log/hyperpod/summary.json",
    "configuration": "cat /opt/ml/config/resource_config.json",
    "boot": "tail -n +1 /var/log/hyperpod/*.log; tail -n 2000 /var/log/provision/provisioning.log",
    "kernel": "dmesg --ctime | tail -n 1000",
    "units": "systemctl --no-pager --failed; systemctl --no-pager list-timers --all",
    "journal": f"journalctl --no-pager -n 1000 {_UNITS}",
    "devices": "lspci -nn | grep -iE 'nvidia|amazon|neuron|3d'; ls -l /dev/nvidia* /dev/neuron* /dev/infiniband",
    "gpu": "nvidia-smi -q; nvidia-smi topo -m; nvidia-smi nvlink -s; nvidia-smi --query-remapped-rows="
    "gpu_uuid,remapped_rows.correctable,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure "
    "--format=csv",
    "neuron": "neuron-ls; neuron-ls --topology",
    # The counters of the driver's own commands are a device's, and not a port's, since Linux 5.14 (efa_verbs.c).
    "efa": "fi_info -p efa; grep -r . /sys/class/infiniband/*/hw_counters /sys/class/infiniband/*/ports/*/hw_counters",
    "network": "ip -brief address; ip route; nstat -asz; ss -s",
    "storage": "mount; df -h; df -i; lsblk; lfs df -h; lctl get_param -n osc.*.state mdc.*.state",
    "processes": "ps -eo pid,user,stat,pcpu,pmem,etime,comm --sort=-pcpu | head -n 200",
    "clock": "timedatectl; chronyc tracking",
    # DCGM checks what it watches, which is nothing until somebody says so (its Health.cpp): --fetch tells.
    "health": "tail -n +1 /var/lib/hyperpod/metrics/health.prom /run/hyperpod-health/results.json; "
    "dcgmi health --fetch; dcgmi health --check; dcgmi --version",
    "scheduler": f"{_OF_SLURM}scontrol --version; sinfo -R; sinfo -Nel; squeue -la; scontrol show node -o; "
    "scontrol show topology; sdiag",
    "slurm": f"{_OF_SLURM}scontrol show config; tail -n 2000 /var/log/slurm/*.log /var/log/slurm*.log",
}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was collected: the archive, its files, what could not be asked, and nodes that nobody asked for."""

    archive: Path
    files: tuple[str, ...]
    failures: tuple[str, ...]
    left_out: tuple[str, ...]


def collect(
    target: Target,
    wanted: Sequence[str],
    output: Path | None,
    more: Mapping[str, str] | None = None,
    on_node: Callable[[str], None] = lambda name: None,
) -> Diagnosis:
    """Write the archive of the nodes of these names, by default of those that say most.

    ``more`` are texts to add, by file name. ``on_node`` is told each node that has answered. What cannot be asked is
    listed in the archive; raises Failure where nothing can.
    """
    nodes = cluster_nodes.list_nodes(target)
    failures: list[str] = []
    try:
        nodes = cluster_nodes.with_states(target, nodes)
    except (Failure, ClientError, BotoCoreError) as error:
        failures.append(f"the scheduler's states: {_why(error, target)}")
    chosen = [cluster_nodes.find(nodes, name) for name in wanted] if wanted else most_telling(nodes)
    files = dict(more or {})
    for name, ask in _questions(target, nodes).items():
        try:
            files[f"cluster/{name}"] = ask()
        except (Failure, ClientError, BotoCoreError) as error:
            failures.append(f"{name}: {_why(error, target)}")
    with ThreadPoolExecutor(sessions.AT_ONCE) as pool:
        for node, answer in zip(chosen, pool.map(lambda one: _ask(target, one), chosen), strict=True):
            on_node(node.name)
            if isinstance(answer, str):
                failures.append(f"{node.name}: {answer}")
            else:
                files |= {f"{node.name}/{name}.txt": text for name, text in answer.items()}
    left_out = tuple(node.name for node in nodes if node not in chosen)
    files["README.txt"] = _readme(target, chosen, failures, left_out)
    now = datetime.now(UTC)
    archive = output or records.folder(target) / f"diagnosis-{now:%Y%m%dT%H%M%S}.tar.gz"
    _write(archive, {name: without_secrets(text) for name, text in sorted(files.items())}, now.timestamp())
    return Diagnosis(archive=archive, files=tuple(sorted(files)), failures=tuple(failures), left_out=left_out)


def most_telling(nodes: Sequence[Node]) -> list[Node]:
    """The controller, and the nodes that are not well, at most eight; without any the first worker."""
    ill = [node for node in nodes if node.role == "worker" and (node.status != "Running" or node.reason)]
    workers = ill or [node for node in nodes if node.role == "worker"][:1]
    return [*(node for node in nodes if node.role == "controller"), *workers][:_MOST_NODES]


def _questions(target: Target, nodes: Sequence[Node]) -> dict[str, Callable[[], str]]:
    """What is asked of AWS and Kubernetes, by the file it goes to."""
    found = {
        "cluster.json": lambda: _json(target.cluster),
        "nodes.json": lambda: _json([node.__dict__ for node in nodes]),
        "lifecycle.txt": lambda: "\n\n".join(
            "\n".join((log.stream, *log.lines))
            for log in node_logs.lifecycle_logs(target.aws, target.cluster_name, 200)
        ),
    }
    if target.on_eks:
        found["kubernetes-nodes.json"] = lambda: _json(cluster_nodes.kubernetes(target).nodes())
        found["kubernetes-pods.json"] = lambda: _json(
            [_without_environment(pod) for pod in cluster_nodes.kubernetes(target).all_pods()]
        )
    return found


def _without_environment(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without its containers' variables and arguments, where people put secrets, and annotations, which repeat
    them."""
    kept = ("name", "image", "resources", "securityContext")
    spec = pod.get("spec", {})
    containers = [{key: one[key] for key in kept if key in one} for one in spec.get("containers", [])]
    metadata = {key: value for key, value in pod["metadata"].items() if key != "annotations"}
    return {**pod, "metadata": metadata, "spec": {**spec, "containers": containers, "initContainers": []}}


def _ask(target: Target, node: Node) -> dict[str, str] | str:
    """A node's sections, or why it did not answer."""
    command = f"echo {base64.b64encode(script().encode()).decode()} | base64 -d | sudo -n bash | gzip | base64"
    try:
        ran = sessions.run_remote(target, node, command, _NODE_SECONDS)
        return parse(gzip.decompress(base64.b64decode(ran.output)).decode(errors="replace"))
    except (Failure, ClientError, BotoCoreError) as error:
        return _why(error, target)
    except (OSError, EOFError, binascii.Error):
        return f"its answer was truncated: {ran.output[-200:].strip()}"


def script() -> str:
    """What a node runs. Each section is bounded, and a command that is missing says so in it."""
    lines = ["export LC_ALL=C PATH=$PATH:/opt/aws/neuron/bin:/opt/amazon/efa/bin:/opt/slurm/bin:/usr/local/bin"]
    for name, command in SECTIONS.items():
        coded = base64.b64encode(command.encode()).decode()
        run = f'timeout -k 2 {_SECTION_SECONDS} bash -c "$(echo {coded} | base64 -d)" < /dev/null'
        lines += [f"echo; echo {MARK} {name}", f"{run} 2>&1 | tail -c {_SECTION_BYTES}"]
    return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, str]:
    """The sections of a node's answer, by name. Marks that no section has are a log's own words."""
    names = "|".join(SECTIONS)
    parts = re.split(rf"^{MARK} ({names})$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for name, said in zip(parts[1::2], parts[2::2], strict=True):
        found.setdefault(name, said.strip("\n") + "\n")
    return found


def _readme(target: Target, chosen: Sequence[Node], failures: Sequence[str], left_out: Sequence[str]) -> str:
    lines = [
        f"Stack {target.stack}, cluster {target.cluster_name} in {target.aws.region}",
        f"Nodes: {', '.join(f'{node.name} ({node.instance_id})' for node in chosen) or 'none'}",
        f"Not asked: {', '.join(left_out) or 'none'}",
        *(f"Failed: {one}" for one in failures),
        "Secrets that could be recognized were replaced with [removed]. Read it before you send it to anybody.",
    ]
    return "\n".join(lines) + "\n"


def _write(archive: Path, files: Mapping[str, str], modified: float) -> None:
    """A tar file that only its owner may read."""
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.touch(mode=0o600)
        archive.chmod(0o600)
        with tarfile.open(archive, "w:gz") as tar:
            for name, text in files.items():
                content = text.encode()
                entry = tarfile.TarInfo(f"{archive.name.split('.')[0]}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(modified), 0o600
                tar.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise bad_input(f"{archive}: {error.strerror}", "another --output") from None


def _why(error: Exception, target: Target) -> str:
    return described(error, target.stack).message


def _json(document: object) -> str:
    return json.dumps(document, indent=2, default=str) + "\n"

"""The exporters: each a unit on loopback, with limits, that restarts whenever it ends.

Images, versions and their options are those of AWS's own scripts (awslabs/awsome-distributed-training,
LifecycleScripts/base-config/observability, 2026-06-01). A unit pulls its image when it starts, and again until it
works: neither the boot nor the node waits for it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

from ..facts.model import Node
from .writer import FOLDER

NODE_IMAGE = "hyperpod/node_exporter:v1.9.1"
DCGM_IMAGE = "hyperpod/dcgm_exporter:4.1.1-4.0.4-ubi9"
# Where a job's prolog writes which job has which GPU; gone after a reboot, as the jobs are.
GPU_JOBS = "/run/hyperpod/gpu-jobs"
NEURON = "/opt/aws/neuron/bin"
# Figures that are not sent yet never hold up a reboot.
_HEAD = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description={what}
After=network-online.target docker.service
Wants=network-online.target docker.service
StartLimitIntervalSec=0

[Service]
Restart=always
RestartSec=30
TimeoutStopSec=10
"""
# The container has its own limits; the unit's are for the command that pulls it and waits for it.
_CONTAINER = """TimeoutStartSec=1800
CPUQuota=50%
MemoryMax=256M
Nice=10
CPUWeight=10
RuntimeDirectory={runtime}
RuntimeDirectoryPreserve=yes
ExecStartPre={bin}/hyperpod-pull {image}
ExecStartPre=-docker rm --force {name}
ExecStart=docker run --rm --name {name} --pull never --log-driver none --net host {options} {image} {arguments}
ExecStop=docker stop --time 5 {name}
"""
# neuron-monitor-prometheus.py listens everywhere, so the kernel admits only this node. It cannot call other addresses
# either (systemd.resource-control(5)): the labels come from the instance's metadata, except for its name, for which
# neuron-monitor asks the AWS CLI in vain (its guide, "instance_info"); once, as that takes a minute.
_NEURON = """Environment=AWS_MAX_ATTEMPTS=1
CPUQuota=25%
MemoryMax=256M
Nice=10
CPUWeight=10
IPAddressDeny=any
IPAddressAllow=localhost 169.254.169.254
ExecStartPre=python3 -c "import prometheus_client"
ExecStart=bash -o pipefail -c "{folder}/neuron-monitor | python3 {folder}/neuron-monitor-prometheus.py --port {port}"
"""


@dataclass(frozen=True)
class Exporter:
    """One exporter: its name as in ``hyperpod_exporter_up``, its port, its unit and the unit's text."""

    name: str
    port: int
    unit: str
    text: str


def for_node(node: Node, registry: str) -> Tuple[List[Exporter], List[str]]:
    """Return the exporters for this node, and what is missing for others."""
    host, group = node.host, node.identity.group
    found: List[Exporter] = []
    missing: List[str] = []
    if host.which("docker") is None:
        missing.append("docker is not installed: no node_exporter, and no DCGM exporter")
    else:
        found.append(_container(node, registry))
        if group.role == "worker" and group.accelerator == "gpu":
            found.append(_dcgm(node, registry))
    if group.role == "worker" and group.accelerator == "trainium":
        if host.path(f"{NEURON}/neuron-monitor-prometheus.py").exists():
            found.append(_neuron())
        else:
            missing.append(f"no {NEURON}/neuron-monitor-prometheus.py: no metrics of NeuronCores")
    return found, missing


def _container(node: Node, registry: str) -> Exporter:
    options = "--pid host --read-only --cap-drop ALL --cpus 0.25 --memory 128m --volume /:/host:ro,rslave"
    arguments = (
        # Softnet's seven figures of each processor would be a quarter of a p5's series; nothing here reads them.
        "--path.rootfs=/host --web.listen-address=127.0.0.1:9100 --no-collector.softnet "
        f"--collector.textfile.directory=/host{FOLDER}"
    )  # fmt: skip
    text = _unit(node, "hyperpod-node-exporter", "node_exporter", f"{registry}/{NODE_IMAGE}", options, arguments)
    return Exporter("node_exporter", 9100, "hyperpod-node-exporter", text)


def _dcgm(node: Node, registry: str) -> Exporter:
    table = metrics_file(node)
    options = (
        "--gpus all --cap-add SYS_ADMIN --cpus 0.5 --memory 1g "
        f"--volume {table}:{table}:ro --volume {GPU_JOBS}:{GPU_JOBS}:ro"
    )  # fmt: skip
    arguments = f"--collectors {table} --address 127.0.0.1:9400 --hpc-job-mapping-dir {GPU_JOBS}"
    text = _unit(node, "hyperpod-dcgm-exporter", "DCGM exporter", f"{registry}/{DCGM_IMAGE}", options, arguments)
    return Exporter("dcgm_exporter", 9400, "hyperpod-dcgm-exporter", text)


def _neuron() -> Exporter:
    body = _NEURON.format(folder=NEURON, port=8000)
    text = _HEAD.format(what="neuron-monitor on loopback") + body
    return Exporter("neuron_monitor", 8000, "hyperpod-neuron-monitor", text)


def _unit(node: Node, name: str, what: str, image: str, options: str, arguments: str) -> str:
    body = _CONTAINER.format(
        bin=node.host.settings.install_folder + "/bin",
        image=image,
        name=name,
        options=options,
        arguments=arguments,
        runtime=GPU_JOBS.replace("/run/", "", 1),
    )
    return _HEAD.format(what=f"{what} on loopback") + body


def metrics_file(node: Node) -> str:
    """Return the path of the DCGM exporter's list of fields."""
    return f"{node.host.settings.state_folder}/dcgm-metrics.csv"


def metrics_list(detail: str) -> str:
    """Return the text of that list: DCGM's field, its type, its meaning.

    Every field is called a gauge: a counter would get another name on its way (exposition.Family).
    """
    with Path(__file__).with_name("dcgm.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if detail == "advanced" or row["detail"] == "basic"]
    return "".join(f"{row['metric']}, gauge, {row['help']}\n" for row in rows)

"""Writes the files and units that send metrics. The boot only writes them and starts a timer, which starts the rest.

Their first work (pulling images, reading every counter) would take processor time that the boot needs.
"""

from __future__ import annotations

import hashlib
from typing import Dict, List

from ..facts.model import Node
from ..host import units
from ..host.host import Host
from . import collector, exporters, facts_file, node, training, writer

# Runs one part of the writer; the timer of the same name starts it.
_WRITER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Writes figures (%i) for node_exporter
ConditionPathIsDirectory={folder}

[Service]
Type=oneshot
ExecStart={bin}/hyperpod-metrics %i
TimeoutStartSec=60
CPUQuota=25%
MemoryMax=150M
Nice=10
CPUWeight=10
LogLevelMax=notice
"""
_TIMER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Figures (%i) every {seconds} s

[Timer]
OnActiveSec=10
OnUnitActiveSec={seconds}
AccuracySec=1
"""
# Services of multi-user.target would hold up a reboot for as long as their images are being pulled.
_TARGET = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=What sends this node's metrics
Wants={units}
"""
# A boot takes a few seconds, and the nodes of a large cluster do not ask the registry all at once.
_STARTER = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Starts what sends this node's metrics, once the node has booted

[Timer]
OnActiveSec=30
RandomizedDelaySec=30
AccuracySec=1
Unit={target}
"""
# After a power failure no epilog has run: without this, jobs that ended then would seem to be stuck for ever.
_CLEANING = """# Made by the HyperPod lifecycle scripts.
R! {training}
d {training} 0755 root root
"""
_FOLDERS = ("/var/lib/hyperpod", writer.FOLDER, "/var/spool/hyperpod", training.FOLDER)
_CLEANING_FILE = "/etc/tmpfiles.d/hyperpod-metrics.conf"
TARGET, STARTER = "hyperpod-metrics.target", "hyperpod-metrics.timer"
# As `systemctl enable` does.
_ENABLED = f"{units.UNITS}/timers.target.wants/{STARTER}"
_TEMPLATES = ("hyperpod-metrics@.service", "hyperpod-metrics@.timer")
_SERVICES = ("hyperpod-node-exporter", "hyperpod-dcgm-exporter", "hyperpod-neuron-monitor", collector.UNIT)


def run(node_: Node, url: str) -> str:
    """Step ``metrics``, with the address of the workspace."""
    host, registry = node_.host, node_.parameters.images_registry
    found, missing = exporters.for_node(node_, registry)
    missing += collector.missing(host)
    for complaint in missing:
        node_.warn(complaint)
    labels = {
        "cluster": node_.parameters.cluster_name,
        "node": host.hostname(),
        "group": node_.identity.group.name,
    }  # fmt: skip
    texts = {f"{exporter.unit}.service": exporter.text for exporter in found}
    if found and not collector.missing(host):
        texts[f"{collector.UNIT}.service"] = collector.unit(host)
    files = {**collector.files(host, url, found, labels), **_files(node_, texts)}
    running = {exporter.name: f"{exporter.unit}.service" for exporter in found}
    if f"{collector.UNIT}.service" in texts:
        running["collector"] = f"{collector.UNIT}.service"
    host.write(facts_file(host), _facts(node_, running).text())
    for folder in _FOLDERS:
        host.folder(folder)
    for name, text in files.items():
        host.write(name, text)
    host.link(_ENABLED, f"{units.UNITS}/{STARTER}")
    _start(host, [*texts, *_timers()], files)
    names = ", ".join(exporter.name for exporter in found) or "no exporter"
    return f"{names} to {url.split('/')[-4]}, from {STARTER} on"


def _facts(node_: Node, running: Dict[str, str]) -> node.Facts:
    group, host = node_.identity.group, node_.host
    return node.Facts(
        cluster=node_.parameters.cluster_name,
        node=host.hostname(),
        group=group.name,
        role=group.role,
        instance_id=node_.identity.instance.instance_id,
        instance_type=group.instance_type,
        accelerators=group.accelerators,
        # Where the catalogue says "maybe", none is missed.
        efa_interfaces=group.efa_interfaces if group.efa == "yes" else 0,
        exporters=running,
        lustre_efa_interfaces=group.lustre_efa_interfaces if node_.parameters.fsx_efa else 0,
    )


def _files(node_: Node, texts: Dict[str, str]) -> Dict[str, str]:
    """Return name to text: units, the DCGM exporter's list, and the clean-up at a boot."""
    bin_folder = node_.host.settings.install_folder + "/bin"
    of_units = {
        _TEMPLATES[0]: _WRITER.format(bin=bin_folder, folder=writer.FOLDER),
        _TEMPLATES[1]: _TIMER.format(seconds=writer.INTERVAL),
        TARGET: _TARGET.format(units=" ".join([*texts, *_timers()])),
        STARTER: _STARTER.format(target=TARGET),
        **texts,
    }
    found = {f"{units.UNITS}/{name}": text for name, text in of_units.items()}
    found[_CLEANING_FILE] = _CLEANING.format(training=training.FOLDER)
    if "hyperpod-dcgm-exporter.service" in texts:
        found[exporters.metrics_file(node_)] = exporters.metrics_list(node_.parameters.metrics_detail)
    return found


def _start(host: Host, names: List[str], files: Dict[str, str]) -> None:
    """Start the timer. Units of an earlier run restart if their files differ, noted once that is done."""
    digest = hashlib.sha256("".join(f"{name}\n{text}" for name, text in sorted(files.items())).encode()).hexdigest()
    stamp = _stamp(host)
    if (host.read(stamp) or digest).strip() != digest:
        units.current(host, STARTER, TARGET, *names)
        host.run("systemctl", "restart", "--no-block", *names)
    host.run("systemctl", "start", "--no-block", STARTER)
    host.write(stamp, digest + "\n")


def _timers() -> List[str]:
    return [f"hyperpod-metrics@{part}.timer" for part in writer.PARTS]


def _stamp(host: Host) -> str:
    return f"{host.settings.state_folder}/metrics.started"


def remove(host: Host) -> None:
    """Remove the files of an earlier boot that sent metrics."""
    there = [f"{name}.service" for name in _SERVICES if units.exists(host, name)]
    host.run("systemctl", "stop", STARTER, TARGET, *there, *_timers(), check=False)
    for name in (
        _ENABLED,
        *(f"{units.UNITS}/{unit}" for unit in (*there, *_TEMPLATES, TARGET, STARTER)),
        _CLEANING_FILE,
    ):
        host.remove(name)
    host.run("systemctl", "daemon-reload")
    for path in sorted(host.path(writer.FOLDER).glob("*.prom")):
        host.remove(f"{writer.FOLDER}/{path.name}")
    host.remove(_stamp(host))
    # Last: it says that there is something to remove.
    host.remove(facts_file(host))

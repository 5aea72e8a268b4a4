"""Accelerators and EFA devices: as many as catalogued, and near each other. Reads files only."""

from __future__ import annotations

from typing import List, Optional

from ..host import accelerators
from ..network import transport
from .model import Finding, Subject, bad, ok, unknown

INFINIBAND = "/sys/class/infiniband"
# The driver's folder has one of each GPU that it holds; one that has fallen off the bus may keep its device file.
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"


def count_accelerators(subject: Subject) -> Optional[Finding]:
    """Check that the node has as many device files as its type has accelerators by the catalogue."""
    group = subject.group
    if not group.accelerators:
        return None
    kind = accelerators.KINDS[group.accelerator]
    found, name = accelerators.found(subject.host, kind), f"{accelerators.DEVICES[kind]}*"
    if found < group.accelerators:
        return bad(f"{found} of {group.accelerators} devices {name}")
    return ok(f"{found} devices")


def count_efa(subject: Subject) -> Optional[Finding]:
    """Check that the node has as many EFA devices with an active port as its type by the catalogue."""
    group = subject.group
    if group.efa != "yes" or not group.accelerators:
        return None
    names = transport.efa_devices(subject.host)
    down = [name for name in names if _port_is_down(subject, name)]
    left = len(names) - len(down)
    if left < group.efa_interfaces:
        return bad(
            f"{left} of {group.efa_interfaces} EFA devices" + (f", port down: {', '.join(down)}" if down else "")
        )
    return ok(f"{left} devices")


def _port_is_down(subject: Subject, name: str) -> bool:
    """Whether the kernel shows a port as down, "4: ACTIVE" if it works; a device without the file counts as working."""
    state = subject.host.read(f"{INFINIBAND}/{name}/ports/1/state")
    return state is not None and "ACTIVE" not in state


def affinity(subject: Subject) -> Optional[Finding]:
    """Check that every GPU has an EFA device on its own NUMA node: traffic then avoids the processors' link."""
    group, host = subject.group, subject.host
    if group.accelerator != "gpu" or group.efa != "yes" or group.efa_interfaces < group.accelerators:
        return None
    folder = host.path(NVIDIA_GPUS)
    gpus = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    nodes = {name: _numa(subject, f"/sys/bus/pci/devices/{name}") for name in gpus}
    near = [_numa(subject, f"{INFINIBAND}/{name}/device") for name in transport.efa_devices(host)]
    if not nodes or None in nodes.values() or not near or None in near:
        return unknown("the kernel does not say on which NUMA node the devices are")
    far: List[str] = [name for name, node in nodes.items() if node not in near]
    return bad(f"no EFA device on the NUMA node of GPU {', '.join(far)}") if far else ok(f"{len(nodes)} GPUs")


def _numa(subject: Subject, device: str) -> Optional[int]:
    """Return a device's NUMA node; None if the kernel does not know it, or reports -1."""
    text = (subject.host.read(f"{device}/numa_node") or "").strip()
    return int(text) if text.isdigit() else None

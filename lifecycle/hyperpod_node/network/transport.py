"""Decides the transport of a node's training traffic, by its type's catalogue row and a probe of its devices.

A wrong guess is not slow but fatal: with FI_EFA_USE_DEVICE_RDMA=1 on a device without RDMA read, libfabric aborts the
process, and with a plugin for EFA on a node without it NCCL hangs. Catalogue and probe must agree; otherwise the node
uses the safer transport and reports it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import List, Optional, Tuple

from ..facts.model import Group, Node, Probe
from ..host.errors import StepError
from ..host.host import Host
from .job_variables import EFA_RDMA, EFA_SENDRECV, TCP

# The PCI vendor of Amazon's devices; an RDMA device with it is an EFA.
AMAZON = "0x1d0f"
# EFA from Nitro v4 on always has RDMA read (EC2 User Guide, Elastic Fabric Adapter, supported instance types). The
# first generation, 0xefa0, has it on some instances and not on others.
GENERATIONS_WITH_READ = frozenset({"0xefa1", "0xefa2", "0xefa3"})
# Prints {"devices": [{"name": ..., "rdma_read": true}]}. One on PATH comes before our own (efa_capabilities.py).
CAPABILITIES = "hyperpod-efa-capabilities"


def probe(node: Node) -> Probe:
    """Look for EFA devices and query their capabilities.

    Presence: /sys/class/infiniband, whose entries are RDMA devices, with Amazon's PCI vendor id; if the kernel has no
    such folder, the domains that ``fi_info -p efa`` lists, each counted once (it lists every device under several
    endpoint types). RDMA read: the device capability bit that libefa's efadv_query_device returns; without the library,
    the PCI device ids, of which only the first leaves it open. Not from fi_info: it shows FI_EP_RDM, and emulates
    FI_RMA, on devices without RDMA read as well.
    """
    devices, source = efa_devices(node.host), "/sys/class/infiniband"
    if not devices:
        devices, source = _fi_info(node), "fi_info"
    if not devices:
        return Probe(0, None, "no EFA device in /sys/class/infiniband nor by fi_info")
    capability = _rdma_read(node)
    return Probe(len(devices), _by_generation(node, devices) if capability is None else capability, source)


def efa_devices(host: Host) -> List[str]:
    """Return the names of the node's EFA devices, none if the kernel has no folder of RDMA devices."""
    folder = host.path("/sys/class/infiniband")
    if not folder.is_dir():
        return []
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if (host.read(f"/sys/class/infiniband/{entry.name}/device/vendor") or "").strip() == AMAZON
    )


def _fi_info(node: Node) -> List[str]:
    if node.host.which("fi_info") is None:
        return []
    try:
        result = node.host.run("fi_info", "-p", "efa", "-t", "FI_EP_RDM", check=False, timeout=20)
    except StepError as error:
        node.warn(str(error))
        return []
    if result.code != 0:
        return []
    domains = re.findall(r"^\s*domain:\s*(\S+)", result.out, re.MULTILINE)
    return sorted({re.sub(r"-(rdm|dgrm|direct)$", "", domain) for domain in domains})


def _rdma_read(node: Node) -> Optional[bool]:
    """Whether every EFA device can read its peers' memory; None if that cannot be asked."""
    if node.host.which(CAPABILITIES):
        command: Tuple[str, ...] = (CAPABILITIES,)
    else:
        command = (sys.executable, "-IB", str(Path(__file__).with_name("efa_capabilities.py")))
    try:
        result = node.host.run(*command, check=False, timeout=20)
        devices = json.loads(result.out)["devices"] if result.code == 0 else []
        return all(bool(device["rdma_read"]) for device in devices) if devices else None
    except (StepError, ValueError, KeyError, TypeError):
        return None


def _by_generation(node: Node, devices: List[str]) -> Optional[bool]:
    """Return True if every device is of a generation that always has RDMA read; None if that is open."""
    ids = {(node.host.read(f"/sys/class/infiniband/{name}/device/device") or "").strip() for name in devices}
    return True if ids <= GENERATIONS_WITH_READ else None


def decide(group: Group, found: Probe) -> "tuple[str, List[str]]":
    """Return the transport, and its warnings."""
    kind = group.instance_type
    if not group.accelerators:
        return TCP, []
    if not found.devices:
        if group.efa == "yes":
            return TCP, [
                f"{kind} has {group.efa_interfaces} EFA interfaces by the catalogue and none was found "
                f"({found.source}): using tcp, far below the wire"
            ]
        return TCP, []
    if group.efa == "no":
        return TCP, [f"{kind} has no EFA by the catalogue, and {found.source} shows {found.devices}: using tcp"]
    complaints = []
    if group.efa == "yes" and found.devices < group.efa_interfaces:
        complaints.append(f"{found.devices} of {group.efa_interfaces} EFA interfaces found ({found.source})")
    if group.rdma_read and found.rdma_read:
        return EFA_RDMA, complaints
    if group.rdma_read:
        why = "the device says it has none" if found.rdma_read is False else "the device could not be asked"
        complaints.append(f"{kind} has RDMA read by the catalogue, and {why}: using efa-sendrecv")
    elif found.rdma_read:
        complaints.append(f"{kind} has no RDMA read by the catalogue, and the device says it has: using efa-sendrecv")
    return EFA_SENDRECV, complaints

"""EFA's counters under the names of AWS's EFA exporter.

Source: awslabs/awsome-distributed-training, 4.validation_and_observability/3.efa-node-exporter. Plain node_exporter has
none of them, and that exporter is a second node_exporter that would duplicate all other metrics.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from ..host.host import Host
from .exposition import Family, Sample

FOLDER = "/sys/class/infiniband"
# Amazon's PCI vendor id.
VENDOR = "0x1d0f"
# The files of hw_counters that are exported, and what each counts; all of them count up.
COUNTERS: Mapping[str, str] = {
    "alloc_pd_err": "Failed allocations of a protection domain",
    "alloc_ucontext_err": "Failed allocations of a user context",
    "cmds_err": "Failed commands of the driver",
    "completed_cmds": "Completed commands of the driver",
    "create_ah_err": "Failed creations of an address handle",
    "create_cq_err": "Failed creations of a completion queue",
    "create_qp_err": "Failed creations of a queue pair",
    "impaired_remote_conn_events": "Connections that became impaired",
    "keep_alive_rcvd": "Keep-alive events from the device",
    "lifespan": "Lifespan of the counters",
    "mmap_err": "Failed memory mappings",
    "no_completion_cmds": "Commands without a completion",
    "rdma_read_bytes": "Bytes received by own RDMA reads",
    "rdma_read_resp_bytes": "Bytes sent for others' RDMA reads",
    "rdma_read_wr_err": "Failed RDMA reads",
    "rdma_read_wrs": "Completed RDMA reads",
    "rdma_write_bytes": "Bytes sent by own RDMA writes",
    "rdma_write_recv_bytes": "Bytes received by others' RDMA writes",
    "rdma_write_wr_err": "Failed RDMA writes",
    "rdma_write_wrs": "Completed RDMA writes",
    "recv_bytes": "Bytes received by receive requests",
    "recv_wrs": "Completed receive requests",
    "retrans_bytes": "Bytes sent again",
    "retrans_pkts": "Packets sent again",
    "retrans_timeout_events": "Timeouts after which packets were sent again",
    "reg_mr_err": "Failed registrations of memory",
    "rx_bytes": "Bytes received",
    "rx_drops": "Packets dropped on arrival",
    "rx_pkts": "Packets received",
    "send_bytes": "Bytes sent by send requests",
    "send_wrs": "Completed send requests",
    "submitted_cmds": "Commands given to the device",
    "tx_bytes": "Bytes sent",
    "tx_pkts": "Packets sent",
    "unresponsive_remote_events": "Connections whose other side did not answer",
}
# Device, port, counter.
Counts = Mapping[Tuple[str, str, str], int]
_NAME = re.compile(r"[\w.-]{1,64}")


def families(host: Host) -> List[Family]:
    """Return the counters of the node's EFA devices; nothing without any."""
    devices = _devices(host)
    info: List[Sample] = [({"device": device}, 1) for device in devices]
    return [Family("node_amazonefa_info", "EFA devices", info), *render(_counts(host, devices))]


def render(counts: Counts) -> List[Family]:
    """Return the counters as metrics."""
    found: Dict[str, List[Sample]] = {}
    for (device, port, counter), value in counts.items():
        found.setdefault(counter, []).append(({"device": device, "port": port}, value))
    return [
        Family(f"node_amazonefa_{counter}", COUNTERS[counter], found[counter], "untyped")
        for counter in COUNTERS
        if counter in found
    ]


def count(text: Optional[str]) -> Optional[int]:
    """Return a counter file's number; None without one."""
    stripped = (text or "").strip()
    return int(stripped) if re.fullmatch(r"[0-9]{1,20}", stripped, re.ASCII) else None


def _devices(host: Host) -> List[str]:
    folder = host.path(FOLDER)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [
        name
        for name in names
        if _NAME.fullmatch(name) and (host.read(f"{FOLDER}/{name}/device/vendor") or "").strip() == VENDOR
    ]


def _counts(host: Host, devices: List[str]) -> Counts:
    found = {}
    for device in devices:
        ports = host.path(f"{FOLDER}/{device}/ports")
        for port in sorted(path.name for path in ports.iterdir()) if ports.is_dir() else []:
            # An EFA has one port. The driver has the counters of its commands in the device's folder since Linux 5.14
            # (drivers/infiniband/hw/efa/efa_verbs.c, EFA_DEFINE_DEVICE_STATS), and in the port's before.
            texts = host.read_all(f"{FOLDER}/{device}/hw_counters", COUNTERS)
            texts.update(host.read_all(f"{FOLDER}/{device}/ports/{port}/hw_counters", COUNTERS))
            for counter, text in texts.items():
                value = count(text)
                if value is not None and port.isdigit():
                    found[device, port, counter] = value
    return found

"""Reads the Lustre client's metrics, under the names of GSI-HPC/lustre_exporter (its client part)."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..host.host import Host
from .exposition import Family, Sample

# By Lustre's age: 2.15 has values in sysfs and statistics in debugfs, older ones have all in proc.
FOLDERS = ("/sys/fs/lustre/llite", "/sys/kernel/debug/lustre/llite", "/proc/fs/lustre/llite")
# File, metric and its meaning. Reading one asks the servers (statfs), and waits for those that do not answer.
GAUGES: Mapping[str, Tuple[str, str]] = {
    "blocksize": ("lustre_blocksize_bytes", "Block size of the file system"),
    "filesfree": ("lustre_inodes_free", "Files that can still be made"),
    "filestotal": ("lustre_inodes_maximum", "Files that there can be"),
    "kbytesavail": ("lustre_available_kibibytes", "Space that users can still write"),
    "kbytesfree": ("lustre_free_kibibytes", "Free space, reserved space included"),
    "kbytestotal": ("lustre_capacity_kibibytes", "Size of the file system"),
}
STATS = "stats"
_TRANSFERS = {"read_bytes": "read", "write_bytes": "write"}
_NAME = re.compile(r"[\w.@-]{1,128}")


class Stat(NamedTuple):
    """One line of a client's statistics: the count, and the sum if it is of bytes."""

    operation: str
    samples: int
    sum: Optional[int]


def families(host: Host) -> List[Family]:
    """Return the metrics of this node's Lustre mounts; nothing without any."""
    files = _files(host)
    gauges: Dict[str, List[Sample]] = {}
    stats: Dict[str, List[Stat]] = {}
    # A file system that is mounted twice is counted once.
    for target, texts in {file_system(instance): files[instance] for instance in sorted(files)}.items():
        for name in GAUGES:
            value = number(texts.get(name))
            if value is not None:
                gauges.setdefault(name, []).append((_labels(target), value))
        stats[target] = parse_stats(texts.get(STATS) or "")
    shown = [Family(*GAUGES[name], samples=gauges[name]) for name in GAUGES if name in gauges]
    return [*shown, *_stat_families(stats)]


def parse_stats(text: str) -> List[Stat]:
    """Parse the operations in a ``stats`` file, such as ``read_bytes 7 samples [bytes] 4096 1048576 7340032``."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != "samples" or not _NAME.fullmatch(fields[0]):
            continue
        samples = number(fields[1])
        if samples is None:
            continue
        total = number(fields[6]) if len(fields) > 6 and fields[3] in ("[bytes]", "[usec]", "[usecs]") else None
        found[fields[0]] = Stat(fields[0], samples, total)
    return list(found.values())


def number(text: Optional[str]) -> Optional[int]:
    """Return a file's number; None without one."""
    stripped = (text or "").strip()
    return int(stripped) if re.fullmatch(r"[0-9]{1,20}", stripped, re.ASCII) else None


def file_system(instance: str) -> str:
    """Return the file system's name. An instance is it and the address of the mount: ``abcdefgh-ffff8e4f3b2a1000``."""
    return re.sub(r"-[0-9a-f]{8,16}$", "", instance)


def _labels(target: str) -> Dict[str, str]:
    return {"component": "client", "target": target}


def _files(host: Host) -> Dict[str, Dict[str, str]]:
    """Return the texts of each instance's files."""
    found: Dict[str, Dict[str, str]] = {}
    for top in FOLDERS:
        folder = host.path(top)
        for path in folder.iterdir() if folder.is_dir() else ():
            if _NAME.fullmatch(path.name):
                texts = host.read_all(f"{top}/{path.name}", (*GAUGES, STATS))
                found[path.name] = {**texts, **found.get(path.name, {})}
    return found


def _stat_families(stats: Mapping[str, List[Stat]]) -> List[Family]:
    lines = [(target, one) for target, found in stats.items() for one in found]
    found: List[Family] = []
    for operation, word in _TRANSFERS.items():
        calls = [(target, one) for target, one in lines if one.operation == operation]
        samples: List[Sample] = [(_labels(target), one.samples) for target, one in calls]
        sums: List[Sample] = [(_labels(target), one.sum) for target, one in calls if one.sum is not None]
        found.append(Family(f"lustre_{word}_samples_total", f"Calls that {word}", samples, "counter"))
        found.append(Family(f"lustre_{word}_bytes_total", f"Bytes of calls that {word}", sums, "counter"))
    others: List[Sample] = [
        ({**_labels(target), "operation": one.operation}, one.samples)
        for target, one in lines
        if one.operation not in _TRANSFERS
    ]
    return [*found, Family("lustre_stats_total", "Operations of the client", others, "counter")]

"""A synthetic fleet: series under the published names and labels, as text from which promtool makes blocks.

It has only what tests/metrics/published says that exporters give, with the labels that docs/metrics.md promises of all
series. So a panel that names anything else stays empty.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from tests.metrics.names import FOLDER, published, rows

CLUSTER = "hyperpod-test"
# The end of the series, and the instant of every question: 2026-01-01 12:00 UTC.
END = 1_767_268_800
STEP = 60
_GROUPS = ("controller", "workers")
# The last worker stops reporting so many seconds before the end.
_LOST = 1200

# What tells the series of one metric on one node apart. Every other label has one value.
_VALUES: Mapping[str, tuple[str, ...]] = {
    "xid": ("31", "94"),
    "neuroncore": ("0", "1", "2", "3"),
    "cpu": ("0", "1"),
    "mode": ("idle", "user"),
    "usage_type": ("user", "system"),
    "memory_location": ("host", "neuron_device"),
    "error_type": ("numerical", "hardware"),
    "status_type": ("completed", "timed_out"),
    "percentile": ("p50", "p99"),
    "event_type": ("mem_ecc_corrected", "mem_ecc_uncorrected"),
    "operation": ("open", "getattr"),
    "partition": ("dev", "workers"),
    "check": ("disk", "gpu-count"),
    "exporter": ("dcgm", "node"),
    "phase": ("Pending", "Running"),
    "status": ("true", "false"),
    "cluster_queue": ("research", "product"),
    "le": ("60", "600", "+Inf"),
    "rank": ("0", "1"),
}
_FIXED = {
    "component": "client",
    "target": "fsx01-client",
    "fstype": "ext4",
    "mountpoint": "/",
    "condition": "Ready",
    "instance_type": "ml.p5.48xlarge",
    "modelName": "NVIDIA H100 80GB HBM3",
    "hpc_job": "1234",
    "reason": "Preempted",
    "resource": "nvidia.com/gpu",
}
# Not of a node: what one exporter says of the whole cluster.
_OF_CLUSTER = re.compile(r"slurm_(?!node_)|kueue_|kube_|hyperpod_queue_")
# What only nodes with accelerators have, and on Slurm no job.
_OF_WORKERS = re.compile(r"DCGM_|hyperpod:|node_amazonefa|neuron|execution_|hardware_|slurm_node_|hyperpod_training")
# Of the labels that a metric may have, those that it has not on GPUs; and of a job's those of the other scheduler.
_NEVER = {"hyperpod:accelerator_busy_ratio": ("neuroncore",)}
_OF_JOBS = {"slurm": ("hpc_job",), "kubernetes": ("namespace", "pod", "container")}
_SHARES = re.compile(r"_ratio$|DCGM_FI_PROF_.*ACTIVE$|_usage_ratio$")


@dataclass(frozen=True)
class Metric:
    """A published metric: its labels besides those of every node, and whether it only grows."""

    name: str
    labels: tuple[str, ...]
    counter: bool


@dataclass(frozen=True)
class Fleet:
    """How large: workers beside one controller, GPUs and EFA devices of each, and hours of samples."""

    workers: int = 3
    gpus: int = 4
    devices: int = 2
    hours: float = 1.5

    def text(self, names: Iterable[str]) -> str:
        """OpenMetrics of these metrics. Raises KeyError where nothing publishes one."""
        lines = itertools.chain.from_iterable(self._lines(known()[name]) for name in sorted(set(names)))
        return "\n".join([*lines, "# EOF", ""])

    def _lines(self, metric: Metric) -> Iterator[str]:
        # Counters without _total are none to OpenMetrics; to Prometheus the type does not matter.
        yield f"# TYPE {metric.name} unknown"
        for labels in self._series(metric):
            written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if value)
            end = END - (_LOST if labels.get("node") == f"workers-{self.workers}" else 0)
            for at in range(int(END - self.hours * 3600), end + 1, STEP):
                yield f"{metric.name}{{{written}}} {_value(metric, labels, at):.6g} {at}"

    def _series(self, metric: Metric) -> Iterator[dict[str, str]]:
        values = {**_VALUES, "gpu": self._numbers(self.gpus)}
        if metric.name.startswith("node_amazonefa"):
            values["device"] = tuple(f"rdmap{number}s0" for number in range(self.devices))
        labels = [one for one in metric.labels if one not in _NEVER.get(metric.name, ())]
        choices = [values.get(label, (_FIXED.get(label, label),)) for label in labels]
        cluster = {"cluster": CLUSTER}
        for chosen in itertools.product(*choices):
            own = dict(zip(labels, chosen, strict=True))
            if _OF_CLUSTER.match(metric.name) and "node" not in own:
                yield {**cluster, **own}
                continue
            for group, node in self._nodes(metric):
                kind = {"instance_type": "ml.m5.2xlarge"} if group == "controller" and "instance_type" in own else {}
                found = {**cluster, "group": group, **own, **kind, "node": node}
                yield self._of_job(found) if _OF_WORKERS.match(metric.name) else found

    @staticmethod
    def _of_job(labels: dict[str, str]) -> dict[str, str]:
        """The second worker's job is Kubernetes', all others are Slurm's."""
        other = "slurm" if labels["node"] == "workers-2" else "kubernetes"
        return {key: value for key, value in labels.items() if key not in _OF_JOBS[other]}

    def _nodes(self, metric: Metric) -> Iterator[tuple[str, str]]:
        if not _OF_WORKERS.match(metric.name):
            yield "controller", "controller-1"
        yield from (("workers", f"workers-{number}") for number in range(1, self.workers + 1))

    @staticmethod
    def _numbers(count: int) -> tuple[str, ...]:
        return tuple(str(number) for number in range(count))


@cache
def known() -> Mapping[str, Metric]:
    """Every metric that is published, promised or recorded, by name."""
    kinds = {row["metric"]: row["type"] for path in FOLDER.rglob("*.csv") for row in rows(path) if "metric" in row}
    return {
        name: Metric(name, tuple(sorted(labels)), kinds.get(name) == "counter") for name, labels in published().items()
    }


def _value(metric: Metric, labels: Mapping[str, str], at: int) -> float:
    """A plausible figure: healthy but for the second worker, which holds its accelerators, idles, and has errors.

    Of the first worker half of the accelerators are free.
    """
    name = metric.name
    seed = sum(map(ord, "".join(labels.values()))) % 17 / 17
    wave = 0.5 + 0.5 * math.sin(at / 900 + 6 * seed)
    ill = labels.get("node") == "workers-2"
    free = labels.get("node") == "workers-1" and labels.get("gpu", "") in ("2", "3", "6", "7")
    if name in _EXACT:
        return _EXACT[name]
    if name.endswith(("_ok", "exporter_up")):
        return float(not ill)
    if name.endswith("_time_seconds"):
        return at - 40 - 60 * seed
    if name == "hyperpod:accelerators_allocated":
        return 4 if labels["node"] == "workers-1" else 8
    if name == "kube_node_status_condition":
        return float(labels["status"] == ("false" if ill else "true"))
    if name == "DCGM_FI_DEV_XID_ERRORS":
        return 94.0 * (ill and labels["gpu"] == "1")
    if (_RARE.search(name) and not metric.counter) or name.startswith("DCGM_EXP_"):
        return float(ill and labels.get("gpu", "1") == "1" and labels.get("xid", "94") == "94")
    if _SHARES.search(name):
        return 0.01 * (1 + seed) if ill or free else 0.6 + 0.3 * wave
    if metric.counter:
        rare = _RARE.search(name) and not (ill and labels.get("gpu", "1") == "1")
        rate = 0 if rare else _RATES.get(name, 0.001)
        return (at - END + 86_400) * rate * (0.5 + seed + float(labels.get("le") == "+Inf"))
    low, high = next((span for form, span in _SPANS.items() if re.search(form, name)), (0.0, 3.0))
    value = low if ill or free else low + (high - low) * (0.3 * seed + 0.7 * wave)
    return value if high - low > 3 or low else round(value)


# What healthy nodes have none of.
_RARE = re.compile(r"ECC|XID|NVLINK|REMAP|REPLAY|readonly|unschedulable|retrans|_err$|_errors_|_ecc_|_drops|remote_")
_EXACT = {
    "hyperpod_node_info": 1,
    "hyperpod:accelerators": 8,
    "hyperpod_accelerators_expected": 8,
    "hyperpod_efa_interfaces_expected": 32,
    "node_filesystem_size_bytes": 1e12,
    "node_filesystem_files": 6e7,
    "node_memory_MemTotal_bytes": 2.2e12,
    "lustre_capacity_kibibytes": 1.2e9,
    "lustre_inodes_maximum": 4e8,
    "DCGM_FI_DEV_FB_FREE": 9000,
    "node_amazonefa_info": 1,
    "slurm_node_gpus": 8,
}
_RATES = {
    "DCGM_FI_DEV_POWER_VIOLATION": 1e7,
    "DCGM_FI_DEV_THERMAL_VIOLATION": 2e6,
    "node_cpu_seconds_total": 0.4,
    "node_disk_io_time_seconds_total": 0.3,
    "node_amazonefa_retrans_bytes": 2e3,
    "lustre_read_bytes_total": 2e9,
    "lustre_write_bytes_total": 6e8,
    "lustre_stats_total": 400,
    "execution_status_total": 20,
    **{f"node_amazonefa_{kind}": 9e9 for kind in ("tx_bytes", "rx_bytes", "rdma_read_bytes", "rdma_write_bytes")},
    **{f"node_amazonefa_{kind}": 2e7 for kind in ("send_bytes", "recv_bytes")},
    **{f"node_disk_{kind}_bytes_total": 4e7 for kind in ("read", "written")},
}
_SPANS = {
    "GPU_TEMP": (48.0, 78.0),
    "MEMORY_TEMP": (60.0, 92.0),
    "POWER_USAGE": (120.0, 690.0),
    "SM_CLOCK": (345.0, 1980.0),
    "FB_USED": (4000.0, 74000.0),
    "files_free": (2e7, 5e7),
    "avail_bytes": (1.2e11, 5e11),
    "MemAvailable": (4e11, 1.8e12),
    "lustre_available": (3e8, 5e8),
    "inodes_free": (1e8, 3e8),
    "memory_usage|memory_used": (1e9, 2e10),
    "latency": (0.02, 0.4),
    "tokens": (2e5, 3e5),
    "loss": (2.1, 3.4),
    "training_step_seconds|compute_seconds": (0.7, 1.1),
    "wait_seconds": (60.0, 5400.0),
    "cycle": (2e3, 4e4),
}

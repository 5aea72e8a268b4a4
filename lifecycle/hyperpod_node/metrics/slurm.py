"""Slurm's metrics on the controller, under the names that slurmctld itself uses from release 25.11 on.

That slurmctld reports them if MetricsType is set (slurm.conf(5)), which HyperPod's agent does not do; images from
before May 2026 have an older one. The meaning of each name is from SchedMD/slurm, src/slurmctld/statistics.c and
src/plugins/metrics/openmetrics (26.05). Two things differ: accelerators of every kind count as GPUs, and a node's
series have its ``group`` too.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..facts.identity import read_instances
from ..facts.model import Instance, host_name
from ..host.accelerators import DEVICES
from ..host.host import Host
from .exposition import Family, Sample, one

SECONDS = 10.0
# A bar after each column: these values have none, but a reason may contain any other character.
_NODE_COLUMNS = "NodeList PartitionName StateComplete CPUsState Gres GresUsed Memory AllocMem FreeMem"
_JOB_COLUMNS = "JobArrayID State Partition NumCPUs EligibleTime Reason"
NODES = ("sinfo", "-h", "-a", "-N", "-O", ",".join(f"{column}:|" for column in _NODE_COLUMNS.split()))
JOBS = ("squeue", "-h", "-a", "-t", "all", "-O", ",".join(f"{column}:|" for column in _JOB_COLUMNS.split()))
DIAG = ("sdiag",)
# Times in seconds since 1970, and arrays with all of their tasks.
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_MIB = 1 << 20
# Slurm's word for a node's state, to the end of the metric's name; of a partition's where that is another.
NODE_STATES: Mapping[str, str] = {
    "ALLOCATED": "alloc", "BLOCKED": "blocked", "CLOUD": "cloud", "COMPLETING": "completing", "DOWN": "down",
    "DYNAMIC_NORM": "dyn_normal", "FAIL": "fail", "FUTURE": "future", "IDLE": "idle", "INVALID_REG": "invalid_reg",
    "MAINTENANCE": "maint", "MIXED": "mixed", "NOT_RESPONDING": "noresp", "PLANNED": "planned",
    "POWERED_DOWN": "powered_down", "POWERING_UP": "powering_up", "REBOOT_ISSUED": "reboot_issued",
    "REBOOT_REQUESTED": "reboot_req", "RESERVED": "resv", "UNKNOWN": "unknown",
}  # fmt: skip
_DRAINS = ("drain", "drained", "draining")
_OF_PARTITIONS = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
# Maps a job's state to the state as which it counts: a job that is being prepared already runs.
JOB_STATES: Mapping[str, Tuple[str, ...]] = {
    "BOOT_FAIL": ("bootfail",), "CANCELLED": ("cancelled",), "COMPLETED": ("completed",),
    "COMPLETING": ("completing",), "CONFIGURING": ("configuring", "running"), "DEADLINE": ("deadline",),
    "FAILED": ("failed",), "NODE_FAIL": ("node_failed",), "OUT_OF_MEMORY": ("outofmemory",), "PENDING": ("pending",),
    "PREEMPTED": ("preempted",), "RUNNING": ("running",), "SUSPENDED": ("suspended",), "TIMEOUT": ("timeout",),
}  # fmt: skip
_HELD = ("JobHeldUser", "JobHeldAdmin")
# Reasons of jobs that wait for their user or their time, and not for nodes.
_NOT_QUEUED = (*_HELD, "Dependency", "DependencyNeverSatisfied", "BeginTime")


class SlurmNode(NamedTuple):
    """A node in one of its partitions. Memory in MiB, None if Slurm has no figure."""

    name: str
    partition: str
    states: Tuple[str, ...]
    cpus: Tuple[int, int, int, int]
    gpus: int
    gpus_used: int
    memory: Optional[int]
    memory_used: Optional[int]
    memory_free: Optional[int]


class Job(NamedTuple):
    """A job, or the waiting tasks of an array. ``eligible``: when it became able to start, in seconds since 1970."""

    tasks: int
    state: str
    partitions: Tuple[str, ...]
    cpus: int
    eligible: Optional[int]
    reason: str


# Section (the beginning of its heading, none for the first lines) and line, to the metric. Cycles in microseconds.
SDIAG_LINES: Mapping[Tuple[str, str], str] = {
    ("", "Server thread count"): "slurm_server_thread_cnt",
    ("", "Agent queue size"): "slurm_agent_queue_size",
    ("", "Agent count"): "slurm_agent_cnt",
    ("", "Agent thread count"): "slurm_agent_thread_cnt",
    ("", "DBD Agent queue size"): "slurm_slurmdbd_queue_size",
    ("", "Jobs submitted"): "slurm_sdiag_jobs_submitted",
    ("", "Jobs started"): "slurm_sdiag_jobs_started",
    ("", "Jobs completed"): "slurm_sdiag_jobs_completed",
    ("", "Jobs canceled"): "slurm_sdiag_jobs_canceled",
    ("", "Jobs failed"): "slurm_sdiag_jobs_failed",
    ("", "Jobs pending"): "slurm_sdiag_jobs_pending",
    ("", "Jobs running"): "slurm_sdiag_jobs_running",
    ("Main schedule statistics", "Last cycle"): "slurm_schedule_cycle_last",
    ("Main schedule statistics", "Max cycle"): "slurm_schedule_cycle_max",
    ("Main schedule statistics", "Mean cycle"): "slurm_sched_mean_cycle",
    ("Main schedule statistics", "Total cycles"): "slurm_schedule_cycle_cnt",
    ("Main schedule statistics", "Last queue length"): "slurm_schedule_queue_len",
    ("Backfilling stats", "Total backfilled jobs (since last slurm start)"): "slurm_backfilled_jobs",
    ("Backfilling stats", "Last cycle"): "slurm_bf_cycle_last",
    ("Backfilling stats", "Max cycle"): "slurm_bf_cycle_max",
    ("Backfilling stats", "Mean cycle"): "slurm_bf_mean_cycle",
    ("Backfilling stats", "Total cycles"): "slurm_bf_cycle_cnt",
    ("Backfilling stats", "Last depth cycle"): "slurm_bf_last_depth",
    ("Backfilling stats", "Last queue length"): "slurm_bf_queue_len",
    ("Backfilling stats", "Last table size"): "slurm_bf_table_size",
}


def families(host: Host) -> List[Family]:
    """Return all of Slurm's metrics. Raises StepError if Slurm does not answer."""
    nodes = parse_nodes(_ask(host, NODES))
    jobs = parse_jobs(_ask(host, JOBS))
    return [
        *node_families(nodes, groups_of(read_instances(host))),
        *job_families(jobs, nodes, host.wall()),
        *parse_diag(_ask(host, DIAG)),
    ]


def _ask(host: Host, command: Sequence[str]) -> str:
    return host.run(*command, timeout=SECONDS, env=_ENVIRONMENT).out


def groups_of(instances: Iterable[Instance]) -> Dict[str, str]:
    """Map Slurm's name of a node, HyperPod's or its host's, to the instance group."""
    return {name: one.group for one in instances for name in (one.name, host_name(one.address)) if one.group}


def parse_nodes(text: str) -> List[SlurmNode]:
    """The lines of ``NODES``; what does not look like one is left out."""
    found = []
    for line in text.splitlines():
        fields = line.split("|")
        cpus = fields[3].split("/") if len(fields) >= 9 else []
        if len(cpus) != 4 or not all(_number(cpu) is not None for cpu in cpus) or not fields[0]:
            continue
        states = tuple(word.strip("*~#!%$@^-+ ") for word in fields[2].upper().split("+"))
        numbers = [int(cpu) for cpu in cpus]
        found.append(
            SlurmNode(
                fields[0], fields[1], states, (numbers[0], numbers[1], numbers[2], numbers[3]),
                gres(fields[4]), gres(fields[5]), *(_number(field) for field in fields[6:9]),
            )
        )  # fmt: skip
    return found


def parse_jobs(text: str) -> List[Job]:
    """The lines of ``JOBS``; what does not look like one is left out."""
    found = []
    for line in text.splitlines():
        fields = line.split("|")
        cpus = _number(fields[3]) if len(fields) >= 6 else None
        if cpus is None:
            continue
        partitions = tuple(name for name in fields[2].split(",") if name)
        state = fields[1].upper()
        found.append(Job(tasks(fields[0]), state, partitions, cpus, _number(fields[4]), fields[5].strip()))
    return found


def gres(text: str) -> int:
    """The accelerators in ``gpu:h100:8(IDX:0-7)``, ``gpu:8(S:0-1),neuron:1`` and the like."""
    count = 0
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = part.strip().split(":")
        number = _number(words[-1])
        if len(words) > 1 and words[0] in DEVICES and number is not None:
            count += number
    return count


def tasks(name: str) -> int:
    """How many tasks ``7_[1-5,9-17:4%2]`` has, 1 where it is no array."""
    found = re.fullmatch(r"[0-9]+_\[([0-9,:-]+)(?:%[0-9]+)?\]", name, re.ASCII)
    count = 0
    for part in found.group(1).split(",") if found else ():
        bounds = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?", part, re.ASCII)
        if bounds:
            first, last, step = (int(word) if word else None for word in bounds.groups())
            count += max(0, ((first or 0) if last is None else last) - (first or 0)) // (step or 1) + 1
    return count or 1


def _number(text: str) -> Optional[int]:
    stripped = text.strip()
    return int(stripped) if re.fullmatch(r"[0-9]{1,18}", stripped, re.ASCII) else None


def _counted(node: SlurmNode) -> List[str]:
    """Return the state as which a node counts."""
    words = [NODE_STATES[state] for state in node.states if state in NODE_STATES]
    if {"DRAIN", "DRAINED", "DRAINING"} & set(node.states):
        busy = {"alloc", "mixed", "completing"} & set(words) or "DRAINING" in node.states
        words += ["draining"] if busy else ["drain", "drained"]
    return words


def node_families(nodes: Sequence[SlurmNode], groups: Mapping[str, str]) -> List[Family]:
    """Of each node, of all together, and of each partition's."""
    single = {node.name: node for node in nodes}
    found = [
        Family(f"slurm_node_{name}", what, _per_node(single, groups, figure))
        for name, what, figure in _NODE_FIGURES
    ]  # fmt: skip
    found.append(Family("slurm_nodes", "Nodes", [({}, len(single))]))
    counts = Counter(word for node in single.values() for word in _counted(node))
    found += [
        Family(f"slurm_nodes_{word}", f"Nodes that are {word}", [({}, counts[word])])
        for word in (*NODE_STATES.values(), *_DRAINS)
    ]
    by_partition: Dict[str, List[SlurmNode]] = {}
    for node in nodes:
        by_partition.setdefault(node.partition, []).append(node)
    return [*found, *_partition_families(by_partition)]


_NODE_FIGURES: Tuple[Tuple[str, str, Callable[[SlurmNode], Optional[int]]], ...] = (
    ("cpus", "CPUs", lambda node: node.cpus[3]),
    ("cpus_alloc", "CPUs of jobs", lambda node: node.cpus[0]),
    ("cpus_idle", "Idle CPUs", lambda node: node.cpus[1]),
    ("gpus", "Accelerators", lambda node: node.gpus),
    ("gpus_alloc", "Accelerators of jobs", lambda node: node.gpus_used),
    ("memory_bytes", "Memory", lambda node: _bytes(node.memory)),
    ("memory_alloc_bytes", "Memory of jobs", lambda node: _bytes(node.memory_used)),
    ("memory_free_bytes", "Free memory, by the node", lambda node: _bytes(node.memory_free)),
)


def _bytes(mib: Optional[int]) -> Optional[int]:
    return None if mib is None else mib * _MIB


def _per_node(
    nodes: Mapping[str, SlurmNode], groups: Mapping[str, str], figure: Callable[[SlurmNode], Optional[int]]
) -> List[Sample]:
    values = ((name, figure(node)) for name, node in nodes.items())
    return [
        ({"node": name, "group": groups.get(name, "unknown")}, value) for name, value in values if value is not None
    ]


def _partition_families(nodes: Mapping[str, Sequence[SlurmNode]]) -> List[Family]:
    def each(name: str, what: str, figure: Callable[[Sequence[SlurmNode]], int]) -> Family:
        samples: List[Sample] = [({"partition": partition}, figure(of)) for partition, of in nodes.items()]
        return Family(f"slurm_partition_{name}", what, samples)

    found = [
        each("nodes", "Nodes", len),
        each("cpus", "CPUs", lambda of: sum(node.cpus[3] for node in of)),
        each("nodes_cpus_alloc", "CPUs of jobs", lambda of: sum(node.cpus[0] for node in of)),
        each("nodes_cpus_idle", "Idle CPUs", lambda of: sum(node.cpus[1] for node in of)),
        each("gpus", "Accelerators", lambda of: sum(node.gpus for node in of)),
    ]
    counts = {partition: Counter(word for node in of for word in _counted(node)) for partition, of in nodes.items()}
    for word in (*NODE_STATES.values(), *_DRAINS):
        samples: List[Sample] = [({"partition": partition}, count[word]) for partition, count in counts.items()]
        name = f"slurm_partition_nodes_{_OF_PARTITIONS.get(word, word)}"
        found.append(Family(name, f"Nodes that are {word}", samples))
    return found


def job_families(jobs: Sequence[Job], nodes: Sequence[SlurmNode], now: float) -> List[Family]:
    """Of all jobs, of each partition's, and how long the first in the queue has waited for nodes."""
    single = {node.name: node for node in nodes}.values()
    partitions = sorted({node.partition for node in nodes} | {name for job in jobs for name in job.partitions})
    of = {name: [job for job in jobs if name in job.partitions] for name in partitions}
    found = [
        Family("slurm_jobs_gpus_alloc", "Accelerators of jobs", [({}, sum(node.gpus_used for node in single))]),
        Family("slurm_jobs_nodes_alloc", "Nodes of jobs", [({}, sum(node.cpus[0] > 0 for node in single))]),
    ]
    everything, parts = _job_counts(jobs), {name: _job_counts(of[name]) for name in partitions}
    for word in everything:
        end = f"_{word}" if word else ""
        found.append(Family(f"slurm_jobs{end}", _said(word), [({}, everything[word])]))
        samples: List[Sample] = [({"partition": name}, counts[word]) for name, counts in parts.items()]
        found.append(Family(f"slurm_partition_jobs{end}", _said(word), samples))
    waits: List[Sample] = [({"partition": name}, _oldest_wait(of[name], now)) for name in partitions]
    what = "How long the job that waits longest for nodes has been able to start"
    return [*found, Family("hyperpod_queue_oldest_wait_seconds", what, waits)]


def _said(word: str) -> str:
    return {"": "Jobs", "hold": "Jobs on hold", "cpus_alloc": "CPUs of jobs"}.get(word, f"Jobs that are {word}")


def _job_counts(jobs: Sequence[Job]) -> Dict[str, int]:
    counts = dict.fromkeys(["", "hold", "cpus_alloc", *(word for words in JOB_STATES.values() for word in words)], 0)
    for job in jobs:
        words = JOB_STATES.get(job.state, ())
        number = job.tasks if "pending" in words else 1
        counts[""] += number
        for word in words:
            counts[word] += number
        if "pending" in words and job.reason in _HELD:
            counts["hold"] += number
        if "running" in words or "suspended" in words:
            counts["cpus_alloc"] += job.cpus
    return counts


def _oldest_wait(jobs: Sequence[Job], now: float) -> float:
    since = [
        job.eligible
        for job in jobs
        if job.state == "PENDING" and job.reason not in _NOT_QUEUED and job.eligible is not None
    ]
    return round(max([0.0, *(now - time for time in since)]), 3)


def parse_diag(text: str) -> List[Family]:
    """The known lines of ``sdiag``."""
    found: Dict[str, int] = {}
    section = ""
    for line in text.splitlines():
        pair = re.fullmatch(r"\s*(.+?):\s+([0-9]{1,18})\s*", line, re.ASCII)
        if pair:
            metric = SDIAG_LINES.get((section, pair.group(1)))
            if metric:
                found.setdefault(metric, int(pair.group(2)))
        # In brackets, sdiag warns of figures that it has taken in the middle of a cycle.
        elif (heading := line.split(" (")[0]) and not heading[0].isspace() and ": " not in heading:
            section = heading.strip(" :*")
    return [
        one(metric, f"{key} of sdiag", found[metric]) for (_, key), metric in SDIAG_LINES.items() if metric in found
    ]

"""Reads the slurm.conf that HyperPod's agent writes, and renders our hyperpod.conf."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..facts.model import Group, Instance, host_name

INCLUDE = "hyperpod.conf"
SLURMD_TIMEOUT = 60
# Seconds between two health checks of a node.
HEALTH_SECONDS = 300
INCLUDE_LINE = f"include {INCLUDE}"
# By default a job whose prolog failed goes back into the queue on hold, and waits for somebody to release it. Without
# the hold Slurm still holds it after MaxBatchRequeue such failures, 5 by default (slurm.conf(5)).
NO_HOLD = "nohold_on_prolog_fail"
# Where the image starts slurmd. slurmctld sends a prolog that is named without a folder to each slurmd ("Configless"
# Slurm, Limitations); one with a folder that is not there yet is no error, and no prolog (prep_script_slurmd.c). A job
# may wait in it for the scripts, and slurmctld takes no job for lost that started less than so many seconds ago.
GATE = "hyperpod-prolog-gate"
GATED = {"Prolog": GATE, "BatchStartTimeout": "660"}
# Limits that no cluster reaches: nodes in a range, and nested includes.
MOST_NODES, MOST_INCLUDES = 65536, 4
# Between them they order the queue: first the quality of service, then the share, and the longest wait among equals.
WEIGHTS = {"PriorityWeightQOS": 100_000, "PriorityWeightFairshare": 10_000, "PriorityWeightAge": 1_000}

NOTHING: Mapping[str, str] = {}
HEADER = "# Made by the HyperPod lifecycle scripts; what is set in slurm.conf itself is not repeated here.\n"


@dataclass(frozen=True)
class SlurmConf:
    """The relevant content of slurm.conf, without our include."""

    keys: Mapping[str, str]
    nodes: Tuple[Mapping[str, str], ...]
    partitions: Tuple[str, ...]
    controllers: Tuple[Tuple[str, str], ...]

    def get(self, key: str, default: str = "") -> str:
        """Return a setting. Slurm ignores the case of names."""
        return self.keys.get(key.lower(), default)

    def port(self, key: str, default: int) -> int:
        """Return a daemon's port, or the first of a range. Return the default for a value that Slurm would refuse."""
        first = self.get(key).split("-")[0]
        return int(first) if re.fullmatch(r"[0-9]{1,5}", first) else default


def parse(text: str) -> SlurmConf:
    """Parse slurm.conf. Lines that Slurm itself would refuse are left to Slurm."""
    keys: Dict[str, str] = {}
    nodes: List[Mapping[str, str]] = []
    partitions, controllers = [], []
    for line in _logical_lines(text):
        pairs = settings(line)
        if "nodename" in pairs:
            if pairs["nodename"].upper() != "DEFAULT":
                nodes.append(pairs)
        elif "partitionname" in pairs:
            partitions.append(pairs["partitionname"])
        elif "slurmctldhost" in pairs:
            match = re.match(r"([^()\s]+)(?:\(([^)]*)\))?", pairs["slurmctldhost"])
            if match:
                controllers.append((match.group(1), match.group(2) or ""))
        else:
            keys.update(pairs)
    return SlurmConf(keys, tuple(nodes), tuple(p for p in partitions if p.upper() != "DEFAULT"), tuple(controllers))


def inline(text: str, read: Callable[[str], Optional[str]], within: Sequence[str] = ()) -> str:
    """Return the text with each include line replaced by its file. A line stays if ``read`` does not find the file."""

    def content(match: "re.Match[str]") -> str:
        name = match.group(1)
        # A file that includes itself would recurse forever.
        found = read(name) if name not in within and len(within) < MOST_INCLUDES else None
        return match.group(0) if found is None else inline(found, read, [*within, name]).rstrip("\n")

    return re.sub(r"^[ \t]*include[ \t]+(\S+).*$", content, text, flags=re.M | re.I)


def _logical_lines(text: str) -> List[str]:
    lines = [line.split("#")[0].strip() for line in re.sub(r"\\\n", " ", text).splitlines()]
    return [line for line in lines if line]


def settings(line: str) -> Dict[str, str]:
    """Return a line's keys, in lower case, and values."""
    found = re.findall(r'(\w+)\s*=\s*("[^"]*"|\S+)', line)
    return {key.lower(): value.strip('"') for key, value in found}


def expand(names: str) -> List[str]:
    """Expand ``ip-10-1-0-[1-3,7]`` to single names. Text that Slurm would refuse stays unchanged."""
    found: List[str] = []
    for part in re.split(r",(?![^\[]*\])", names):
        match = re.match(r"(.*)\[([^\]]+)\](.*)$", part)
        if not match:
            found.append(part)
            continue
        head, ranges, tail = match.groups()
        numbers = [number for piece in ranges.split(",") for number in _numbers(piece)]
        found.extend([f"{head}{number}{tail}" for number in numbers] or [part])
    return found


def _numbers(piece: str) -> List[str]:
    """Expand ``08-10`` to numbers of the same width; empty if it is not a range, or too large for memory."""
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", piece)
    if not found:
        return []
    first, last = int(found.group(1)), int(found.group(2) or found.group(1))
    width = len(found.group(1)) if piece.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)] if last - first < MOST_NODES else []


def node_set(group: str) -> str:
    """Return the name of the NodeSet with a group's nodes (slurm/partitions.py). No node has such a name."""
    return f"hyperpod-{group}"


def gres(group: Group) -> str:
    """Return ``gpu:8``; empty without accelerators."""
    return f"{group.gres}:{group.accelerators}" if group.gres and group.accelerators else ""


def groups_of_nodes(
    conf: SlurmConf, instances: Sequence[Instance], recorded: Mapping[str, str], groups: Mapping[str, Group]
) -> Dict[str, Group]:
    """Map Slurm's node names to worker groups: by address, by HyperPod's name, or by the node's own record."""
    by_address = {i.address: i.group for i in instances if i.address}
    by_address.update({host_name(address): name for address, name in list(by_address.items())})
    workers = {name: group for name, group in groups.items() if group.role == "worker"}
    only = next(iter(workers)) if len(workers) == 1 else ""
    found = {}
    for name, address in _addressed(conf):
        group = by_address.get(address) or by_address.get(name) or recorded.get(name) or only
        if group in workers:
            found[name] = workers[group]
    return found


def _addressed(conf: SlurmConf) -> Iterator[Tuple[str, str]]:
    """Return each node's name and address, which is empty if its line has none."""
    for entry in conf.nodes:
        addresses = expand(entry["nodeaddr"]) if "nodeaddr" in entry else []
        for index, name in enumerate(expand(entry["nodename"])):
            yield name, addresses[index] if index < len(addresses) else ""


def render(
    conf: SlurmConf,
    groups: Mapping[str, Group],
    by_node: Mapping[str, Group],
    bin_folder: str,
    contain: bool = False,
    database: str = "",
    containers: bool = False,
    more: Mapping[str, str] = NOTHING,
) -> str:
    """Return hyperpod.conf: our settings that slurm.conf lacks. Slurm complains about a duplicate setting.

    ``database``: the address of slurmdbd, empty without accounting. ``containers``: whether a plug-in does TaskProlog's
    work (containers.py). ``more``: further settings.

    If slurm.conf already has partitions, we add another only once it has nodes. Until then HyperPod's agent may still
    write it, and slurmctld exits if a partition is defined twice.
    """
    workers = [group for group in groups.values() if group.role == "worker"]
    wanted = {
        # Slurm requeues a job whose node is lost, and a node that returns accepts jobs again.
        "JobRequeue": "1",
        "ReturnToService": "2",
        # hyperpod-requeue notices a lost node much earlier. This is the fallback if it does not run.
        "SlurmdTimeout": str(SLURMD_TIMEOUT),
        "KillWait": "10",
        # Seconds until a node on which a killed process has not ended is drained ("Kill task failed"). To give back
        # pinned memory, or to write to a busy file system, may take longer than the default of 60 (SchedMD, bug 3941).
        "UnkillableStepTimeout": "180",
        # The defaults of 3 and 30 seconds suit clusters with thousands of short jobs. After slurmctld reads its
        # configuration, which it does whenever a node joins, it waits 3 or 4 seconds before it schedules; backfill
        # starts a job within one. bf_max_time is slurm.conf(5)'s default; it advises max_rpc_cnt for short intervals.
        # No job waits longer for near nodes than max_switch_wait, whatever it says; the default is 300.
        "SchedulerParameters": "batch_sched_delay=1,bf_interval=1,bf_max_time=30,max_rpc_cnt=150,max_switch_wait=3600,"
        + NO_HOLD,
        # A job gets slurmd's limits (slurm/worker.py), and not those of the shell that submits it, as by default: a
        # session of Session Manager may pin next to no memory, which EFA has to.
        "PropagateResourceLimitsExcept": "MEMLOCK,NOFILE,STACK",
        "Prolog": f"{bin_folder}/hyperpod-prolog",
        "Epilog": f"{bin_folder}/hyperpod-epilog",
    }
    if conf.get("PropagateResourceLimits"):
        # Only one of the two may be set (slurm.conf(5)).
        del wanted["PropagateResourceLimitsExcept"]
    if not containers:
        wanted["TaskProlog"] = f"{bin_folder}/hyperpod-task-prolog"
    if not conf.get("HealthCheckProgram"):
        # Of all nodes, those that are out included, and spread over the interval (slurm.conf(5)).
        wanted["HealthCheckProgram"] = f"{bin_folder}/hyperpod-health-check"
        wanted["HealthCheckInterval"] = str(HEALTH_SECONDS)
        wanted["HealthCheckNodeState"] = "ANY,CYCLE"
    if contain:
        # A step of every job on each of its nodes, which sessions by ssh are made part of (people/ssh_jobs.py).
        wanted["PrologFlags"] = "Contain"
    kinds = sorted({group.gres_name for group in workers if gres(group)})
    if kinds:
        wanted["GresTypes"] = ",".join(kinds)
    if "enable_configless" not in conf.get("SlurmctldParameters") and not conf.get("SlurmctldParameters"):
        wanted["SlurmctldParameters"] = "enable_configless"
    wanted.update(more)
    if database:
        wanted.update(accounting_settings(database, kinds))
    lines = [f"{key}={value}" for key, value in wanted.items() if not conf.get(key)]
    lines += accounting_partition_defaults(kinds) if database else []
    there = by_node.values() if conf.partitions else workers
    names = [name for name in dict.fromkeys(group.partition for group in there if group.accelerator) if name]
    training = [node_set(group.name) for group in workers if group.accelerator]
    nodes = "ALL" if len(training) == len(workers) else ",".join(training)
    first = not conf.partitions
    for name in names:
        if name not in conf.partitions:
            default = "YES" if first else "NO"
            lines.append(f"PartitionName={name} Nodes={nodes} Default={default} MaxTime=INFINITE State=UP")
            first = False
    return HEADER + "\n".join(lines) + "\n"


def accounting_settings(host: str, kinds: Sequence[str]) -> Dict[str, str]:
    """Return settings for accounting, limits, fair share and preemption (slurm.conf(5)), for a slurmdbd at this
    address.

    ``kinds``: the accelerators by their names in Slurm.
    """
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host,
        # Slurm reads no line without a value.
        **({"AccountingStorageTRES": ",".join(f"gres/{kind}" for kind in kinds)} if kinds else {}),
        # Both need an association: Slurm refuses a job of a user without one.
        "AccountingStorageEnforce": "limits,qos",
        "JobAcctGatherType": "jobacct_gather/linux",
        "PriorityType": "priority/multifactor",
        **{name: str(weight) for name, weight in WEIGHTS.items()},
        # A job that has to go returns to the queue, and the training scripts resume from their checkpoints.
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
    }


def accounting_partition_defaults(kinds: Sequence[str]) -> List[str]:
    """Charge accelerators to a share, not CPUs as by default, of which instance types have unlike numbers."""
    weights = ",".join(["CPU=0.001", *(f"GRES/{kind}=1.0" for kind in kinds)])
    return [f'PartitionName=DEFAULT TRESBillingWeights="{weights}"'] if kinds else []


def missing_keys(conf: SlurmConf, bin_folder: str) -> List[str]:
    """Warn about settings in slurm.conf that differ from those that our hooks need."""
    found = []
    hook = conf.get("TaskProlog")
    if hook and not hook.startswith(bin_folder):
        found.append(
            f"slurm.conf has a TaskProlog of its own ({hook}): jobs do not get this node's transport variables"
        )
    if conf.get("SlurmctldParameters") and "enable_configless" not in conf.get("SlurmctldParameters"):
        found.append("slurm.conf sets SlurmctldParameters without enable_configless: workers cannot fetch it")
    timeout = conf.get("SlurmdTimeout")
    if re.fullmatch(r"[0-9]{1,9}", timeout) and int(timeout) > SLURMD_TIMEOUT:
        found.append(
            f"slurm.conf sets SlurmdTimeout={timeout}: a job with auto-resume is requeued only after that many seconds"
        )
    health = conf.get("HealthCheckProgram")
    if health and not health.startswith(bin_folder):
        found.append(f"slurm.conf has a HealthCheckProgram of its own ({health}): this project's checks do not run")
    schedules = conf.get("SchedulerParameters")
    if schedules and NO_HOLD not in schedules.lower():
        found.append(f"slurm.conf sets SchedulerParameters without {NO_HOLD}: a job that meets a bad node is held")
    if conf.get("JobRequeue") == "0":
        found.append("slurm.conf sets JobRequeue=0: a job whose node is lost is not put back into the queue")
    return found


def not_contained(conf: SlurmConf) -> List[str]:
    """Warn about settings in slurm.conf with which an ssh session is not its job's (Slurm, pam_slurm_adopt)."""
    found = []
    flags = conf.get("PrologFlags")
    if flags and "contain" not in flags.lower():
        found.append(f"slurm.conf sets PrologFlags={flags}, without Contain: ssh to workers needs no job")
    for key, default, wanted in (
        ("ProctrackType", "proctrack/cgroup", "proctrack/cgroup"),
        ("TaskPlugin", "", "task/cgroup"),
    ):
        if wanted not in (value := conf.get(key, default)):
            found.append(f"slurm.conf has {key}={value}, not {wanted}: a session by ssh needs a job, and outlives it")
    return found


def carrier(text: str) -> Optional[str]:
    """Return the file for our include line: accounting.conf if slurm.conf includes it; None for slurm.conf itself.

    HyperPod's agent rewrites slurm.conf when nodes come and go, and the new one includes accounting.conf. That file is
    empty by default and stays as it is (awsome-distributed-ai, setup_mariadb_accounting.sh).
    """
    for line in _logical_lines(text):
        if re.match(r"(NodeName|PartitionName)\s*=", line, re.IGNORECASE):
            return None
        found = re.match(r"include\s+(\S*accounting\.conf)$", line, re.IGNORECASE)
        if found:
            return found.group(1)
    return None


def without_include(text: str) -> str:
    """Return slurm.conf without the line that includes hyperpod.conf."""
    return re.sub(rf"^\s*include\s+\S*{re.escape(INCLUDE)}\s*\n", "", text, flags=re.MULTILINE | re.IGNORECASE)


def with_include(text: str) -> str:
    """Return slurm.conf with a line that includes hyperpod.conf before the first node: it sets nodes' defaults."""
    if re.search(rf"^\s*include\s+\S*{re.escape(INCLUDE)}\s*$", text, re.MULTILINE | re.IGNORECASE):
        return text
    lines = text.splitlines()
    where = next(
        (i for i, line in enumerate(lines) if re.match(r"\s*(NodeName|PartitionName)\s*=", line, re.IGNORECASE)),
        len(lines),
    )
    return "\n".join([*lines[:where], INCLUDE_LINE, *lines[where:]]) + "\n"


def with_future(text: str, login: Set[str]) -> str:
    """Set the state of login nodes to FUTURE: they run no slurmd, so Slurm would show them as DOWN otherwise.

    HyperPod's agent writes lines for login nodes too, and its default partition has all nodes (awsome-distributed-ai,
    hyperpod-mental-model.md). Slurm shows a FUTURE node in no partition and in no list (slurm.conf(5)).
    """
    lines = []
    for line in text.splitlines():
        name = settings(line.split("#")[0]).get("nodename", "")
        if name and set(expand(name)) <= login:
            line = re.sub(r"\s+State=\S+", "", line.split("#")[0].rstrip(), flags=re.I) + " State=FUTURE"
        lines.append(line)
    return "\n".join(lines) + "\n"


def login_nodes(conf: SlurmConf, instances: Sequence[Instance], groups: Mapping[str, Group]) -> Set[str]:
    """Return Slurm's names of the login nodes, found by their addresses or by HyperPod's names."""
    ours = [i for i in instances if i.group in groups and groups[i.group].role == "login"]
    known = {i.name for i in ours} | {i.address for i in ours} | {host_name(i.address) for i in ours if i.address}
    return {name for name, address in _addressed(conf) if {name, address} & known - {""}}


def is_blank(text: Optional[str]) -> bool:
    """Whether a file of Slurm's is missing, or has only comments."""
    return not _logical_lines(text or "")

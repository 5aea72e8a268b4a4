"""What the project's own services ask of a controller: processor time, and calls to slurmctld by its own statistics."""

import json
import os
import re
import time
from dataclasses import dataclass, replace

from hyperpod_node.metrics.writer import INTERVAL
from hyperpod_node.slurm.conf import HEALTH_SECONDS

from rehearsal.nodes.hosts import Host

_WATCHED = 20.0
_BIN = "/opt/hyperpod/bin"
# Runs a command, and prints the processor time and the most memory that it and its children had.
_USED = """import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Processor seconds and calls to slurmctld in a minute; ``megabytes``: the most memory of a run, where asked."""

    cpu_seconds: float
    calls: float
    megabytes: int = 0


def requeue(head: Host) -> tuple[Cost, float]:
    """The requeue service, and the processor seconds of slurmctld in a minute meanwhile."""
    services = {name: _pid(head, name) for name in ("hyperpod-requeue", "slurmctld")}
    head.run("sdiag --reset")
    began, before = time.monotonic(), {name: _cpu(head, pid) for name, pid in services.items()}
    time.sleep(_WATCHED)
    used = {name: _cpu(head, pid) - before[name] for name, pid in services.items()}
    a_minute = 60 / (time.monotonic() - began)
    cost = Cost(cpu_seconds=round(used["hyperpod-requeue"] * a_minute, 1), calls=round(calls(head) * a_minute))
    return cost, round(used["slurmctld"] * a_minute, 1)


def metrics(head: Host) -> Cost:
    """The writer of the controller's figures."""
    return _run(head, head, [f"{_BIN}/hyperpod-metrics", "node"], 60 / INTERVAL)


def health(head: Host, worker: Host, nodes: int) -> Cost:
    """The health checks: the calls of all nodes in a minute, and the processor time of one of them."""
    one = _run(head, worker, [f"{_BIN}/hyperpod-health"], 60 / HEALTH_SECONDS)
    return replace(one, calls=round(one.calls * nodes))


def _run(head: Host, host: Host, command: list[str], a_minute: float) -> Cost:
    """A command that runs so many times a minute."""
    # They would be counted, too, and the timer's run keeps another from beginning.
    head.run("systemctl stop hyperpod-requeue hyperpod-metrics@node.timer hyperpod-metrics@node; sdiag --reset")
    code, seconds, kilobytes = json.loads(host.run(["python3", "-c", _USED, *command], timeout=120).stdout)
    counted = calls(head)
    head.run("systemctl start hyperpod-requeue hyperpod-metrics@node.timer")
    if code not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: exit status {code}")
    return Cost(cpu_seconds=round(seconds * a_minute, 2), calls=counted * a_minute, megabytes=kilobytes // 1024)


def _pid(head: Host, service: str) -> int:
    return int(head.run(f"systemctl show -p MainPID --value {service}").stdout)


def _cpu(head: Host, pid: int) -> float:
    """Processor seconds of a process and of its children that have ended (proc(5), stat)."""
    fields = head.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def calls(head: Host) -> int:
    """Calls of clients since the reset or the start of slurmctld, without that of sdiag itself."""
    found = re.findall(r"^\s+REQUEST_\w+\s*\(\s*\d+\) count:(\d+)", head.run("sdiag").stdout, re.MULTILINE)
    return sum(map(int, found)) - 1

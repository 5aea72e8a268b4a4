"""``hyperpod-health``: runs the checks, files the findings, and applies the policy.

Slurm's HealthCheckProgram on a worker, through health.sh; a systemd timer's program on EKS, where node-problem-detector
also makes a condition of it. Prints a table; its exit status is 1 if anything is bad.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping

from ..facts import node_record
from ..host.errors import StepError
from ..host.host import Host
from ..host.safe_open import take_lock
from ..host.settings import Settings
from . import checks, kubernetes, policy
from .model import FOLDER, UNKNOWN, Subject, load

MEMORY, RESULTS, REASON = f"{FOLDER}/memory.json", f"{FOLDER}/results.json", f"{FOLDER}/reason"
METRICS = "/var/lib/hyperpod/metrics"
LOG = "/var/log/hyperpod/health.log"
# Bytes after which a new log begins; the previous one stays next to it.
LONGEST_LOG = 1 << 20
# Seconds; slurmd ends its HealthCheckProgram after as long (slurm.conf(5)).
LONGEST_RUN = 60.0


def once(host: Host) -> List[checks.Result]:
    """Run the checks once. Raises StepError if the node has no record of what it is."""
    record = node_record.read(host)
    known = record.parameters
    host.folder(FOLDER)
    memory = load(host, MEMORY)
    on_slurm, trouble, node = known.orchestrator == "slurm", "", None
    if on_slurm:
        try:
            node = policy.standing(host, [host.hostname(), record.instance.name])
        except StepError as error:
            trouble = str(error)
    subject = Subject(host, record.group, known.fsx_mount if on_slurm else "", known.imds_v1, memory=memory)
    subject.idle = node is not None and not node.busy
    results = checks.run(subject)
    wrong = checks.wrong(results)
    done, well, what = trouble, _well(results, memory), known.health_policy
    try:
        if node is not None:
            done = policy.apply(host, node, wrong, well, what, memory)
        elif not on_slurm:
            group = subject.group
            set_up = next((one.finding for one in results if one.check == "setup"), None)
            done = kubernetes.apply(
                host, group.taints, wrong, well, what, memory, devices=bool(group.accelerators), set_up=set_up
            )
    except StepError as error:
        done = str(error)
    memory["wrong"] = sorted(wrong) or ([] if well else memory.get("wrong", []))
    host.write(MEMORY, json.dumps(memory, sort_keys=True) + "\n", mode=0o600)
    _file(host, results, wrong, done)
    return results


def _well(results: List[checks.Result], memory: Mapping[str, Any]) -> bool:
    """Whether nothing is bad, and nothing that was bad is unknown now."""
    unknown = {one.check for one in results if one.finding.status == UNKNOWN}
    return not checks.wrong(results) and not unknown & set(memory.get("wrong", []))


def _file(host: Host, results: List[checks.Result], wrong: Mapping[str, str], done: str) -> None:
    found = {one.check: {"status": one.finding.status, "detail": one.finding.detail} for one in results}
    document = {"time": round(host.wall(), 1), "checks": found, "done": done}
    host.write(RESULTS, json.dumps(document, indent=2, sort_keys=True) + "\n")
    # The file that node-problem-detector reads: empty if all is well.
    host.write(REASON, "".join(f"{check}: {why}\n" for check, why in wrong.items()))
    if host.path(METRICS).is_dir():
        host.write(f"{METRICS}/health.prom", prometheus(results, host.wall()))


def prometheus(results: List[checks.Result], now: float) -> str:
    """Return the results as metrics. An unknown check has no value for ok."""
    ok = [(one, int(one.finding.status == "ok")) for one in results if one.finding.status != UNKNOWN]
    lines = [
        "# HELP hyperpod_health_check_ok Whether the last run of a check found the node well.",
        "# TYPE hyperpod_health_check_ok gauge",
        *(f'hyperpod_health_check_ok{{check="{one.check}"}} {value}' for one, value in ok),
        "# HELP hyperpod_health_check_seconds How long the check took.",
        "# TYPE hyperpod_health_check_seconds gauge",
        *(f'hyperpod_health_check_seconds{{check="{one.check}"}} {one.seconds:.3f}' for one in results),
        "# HELP hyperpod_health_last_run_time_seconds When the checks ran last.",
        "# TYPE hyperpod_health_last_run_time_seconds gauge",
        f"hyperpod_health_last_run_time_seconds {now:.0f}",
    ]
    return "\n".join(lines) + "\n"


def table(results: List[checks.Result]) -> List[str]:
    """Return check, status and detail for people."""
    width = max(len(one.check) for one in results)
    return [f"{one.check:<{width}}  {one.finding.status:<7}  {one.finding.detail}".rstrip() for one in results]


def main() -> int:
    """Run the checks, one run at a time. If one is under way, wait for its results instead."""
    host = Host(Settings.from_environment())
    os.umask(0o022)
    lock = os.open("/run/hyperpod-health.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not take_lock(lock):
        print(f"hyperpod-health: it is already running here; its results will be in {RESULTS}")
        try:
            host.poll("the other run has not ended", lambda: take_lock(lock), LONGEST_RUN)
        except StepError as error:
            print(f"hyperpod-health: {error}", file=sys.stderr)
        return 0
    try:
        results = once(host)
    except StepError as error:
        print(f"hyperpod-health: {error}", file=sys.stderr)
        return 2
    done: Dict[str, Any] = load(host, RESULTS)
    for line in (*table(results), str(done.get("done", ""))):
        print(line)
    wrong = checks.wrong(results)
    if wrong:
        _log(f"{host.wall():.0f} {json.dumps({'wrong': wrong, 'done': done.get('done')}, sort_keys=True)}")
    return 1 if wrong else 0


def _log(line: str) -> None:
    path = Path(LOG)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LONGEST_LOG:
        path.replace(path.with_suffix(".log.1"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # A check that hangs in the kernel must not keep the process: its thread cannot be ended.
    os._exit(code)

"""Runs the steps, writes the summary, exits non-zero if a required step failed. on_create.sh starts it."""

from __future__ import annotations

import json
import os
import sys
from typing import Sequence

from .boot import summary
from .boot.runner import Outcome, Runner
from .boot.steps import for_orchestrator
from .facts.model import Node
from .host import safe_open
from .host.host import Host
from .host.settings import Settings


def log(line: str) -> None:
    """Write one line for the log and CloudWatch."""
    print(line, flush=True)


def boot(host: Host) -> int:
    """Run all steps, on a real machine or a fake one. Return the exit status."""
    node = Node(host)
    start = host.now()
    outcomes = Runner(node, for_orchestrator(node), log).run()
    return report(node, outcomes, host.now() - start)


def report(node: Node, outcomes: Sequence[Outcome], seconds: float) -> int:
    """Print and file the summary; a failed step's reason is the last line."""
    record = summary.document(node, outcomes, seconds)
    log("")
    for line in summary.table(outcomes):
        log(line)
    who = f"{record.get('role', 'node')} {record['hostname']}"
    log(f"{who}: {record['status']} after {seconds:.2f} s, {len(record['changed'])} files changed")
    # For CloudWatch: one line that a query can read. The names of the files are in the summary on disk.
    log("summary " + json.dumps({**record, "changed": len(record["changed"])}, sort_keys=True))
    _file(node, record)
    reason = summary.last_line(outcomes)
    if reason:
        log(reason)
    return 1 if reason else 0


def _file(node: Node, record: "dict[str, object]") -> None:
    """Keep the summary on the node and, where it is mounted, on the shared file system."""
    host = node.host
    names = [host.settings.log_folder + "/summary.json"]
    if node.facts.get("fsx"):
        names.append(f"{node.shared}/nodes/{host.hostname()}.json")
    for name in names:
        try:
            host.write(name, summary.text(record))
        except OSError as error:
            log(f"summary not written to {name}: {error}")


def main() -> int:
    """Boot, one run at a time: a second one would race with the first for the same files."""
    settings = Settings.from_environment()
    os.umask(0o022)
    if os.geteuid() != 0:
        log("step parameters failed: must run as root")
        return 1
    with safe_open.holds_lock(settings.lock) as alone:
        if not alone:
            log("step parameters failed: on_create is already running on this node")
            return 1
        return boot(Host(settings))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # A step that hangs in the kernel must not keep the process: its thread cannot be ended.
    os._exit(code)

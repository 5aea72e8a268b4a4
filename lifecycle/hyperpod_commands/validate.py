"""``hyperpod-validate``: checks that this node still works as it did after its boot, with one line per check."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, Tuple

from hyperpod_node.facts.model import NodeRecord
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Host
from hyperpod_node.host.settings import Settings
from hyperpod_node.network import metadata_guard
from hyperpod_node.slurm import topology as slurm_topology

from .cluster import BIN, Trouble, record, run
from .node_facts import devices

SUMMARY = "/var/log/hyperpod/summary.json"
# AWS's own check found that metadata and pings go over TCP by design (aws-parallelcluster, pull request 7572); so many
# messages without one of file data, which goes over EFA, do not come from an idle node.
TCP_ALONE = 100_000
Check = Tuple[str, Callable[[NodeRecord], str]]


def boot(_: NodeRecord) -> str:
    """Check how the lifecycle script ended."""
    summary: Dict[str, Any] = json.loads(Path(SUMMARY).read_text(encoding="utf-8"))
    bad = [s for s in summary["steps"] if s["result"] not in ("ok", "skipped")]
    if bad:
        said = "; ".join(f"{s['name']}: {', '.join(s['warnings']) or s['detail']}" for s in bad)
        raise Trouble(f"{summary['status']}: {said}")
    return f"{summary['status']} after {summary['boot_seconds']:.1f} s"


def shared(own: NodeRecord) -> str:
    """Check that a file can be written to the shared file system and read back."""
    mount_point = own.parameters.fsx_mount
    if not os.path.ismount(mount_point):
        raise Trouble(f"{mount_point} is not mounted")
    path = Path(mount_point, f".hyperpod-validate-{os.uname().nodename}-{os.getpid()}")
    path.write_text("x", encoding="ascii")
    path.unlink()
    free = shutil.disk_usage(mount_point).free
    return f"{mount_point} is writable, {free / 2**30:.0f} GiB free"


def munge(_: NodeRecord) -> str:
    """Check that MUNGE accepts its own credential."""
    credential = run(["munge", "-n"], timeout=10)
    subprocess.run(
        ["unmunge"], input=credential, stdout=subprocess.DEVNULL, universal_newlines=True, check=True, timeout=10
    )
    return "encoded and decoded a credential"


def slurm(own: NodeRecord) -> str:
    """Check that the controller answers, and a worker accepts jobs."""
    ping = run(["scontrol", "ping"], timeout=20)
    if "UP" not in ping:
        raise Trouble(ping.strip())
    if own.group.role != "worker":
        return ping.strip().splitlines()[0]
    shown = run(["scontrol", "show", "node", os.uname().nodename.split(".")[0], "-o"], timeout=20)
    state = next((word[6:] for word in shown.split() if word.startswith("State=")), "UNKNOWN")
    if state.split("+")[0] not in ("IDLE", "MIXED", "ALLOCATED") or any(
        f in state for f in ("DRAIN", "FAIL", "DOWN", "*")
    ):
        raise Trouble(f"this node is {state}")
    return state.lower()


def topology(own: NodeRecord) -> str:
    """Check that Slurm can plan with every node: HyperPod's map of the network has it."""
    if own.group.role != "controller":
        return "the controller's"
    host = Host(Settings.from_environment())
    tree, lines = (host.read(f"{host.settings.slurm_etc}/{name}") or "" for name in slurm_topology.MAPS)
    nodes: Dict[str, List[str]] = {}
    for line in run(["sinfo", "--all", "--noheader", "--Node", "--format=%N|%R"], timeout=20).split():
        name, _, partition = line.partition("|")
        nodes.setdefault(name, []).append(partition)
    if not tree:
        lacking = slurm_topology.lacking(lines, nodes)
        then = "Slurm plans without it until HyperPod has added them"
    else:
        shown = run(["scontrol", "show", "partition", "--oneliner"], timeout=20).splitlines()
        partitions = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in shown]
        lacking = slurm_topology.unmapped(
            tree, {one["PartitionName"]: one.get("Topology", "") for one in partitions}, nodes
        )
        then = "jobs that ask for them are refused, and no other gets them, until HyperPod has added them"
    if lacking:
        raise Trouble(f"the map of the network ({slurm_topology.MAPS[not tree]}) lacks {_first_ten(lacking)}: {then}")
    return f"{len(nodes)} nodes" if tree or lines else "no map"


def _first_ten(names: Set[str]) -> str:
    """Return ten names, and how many more."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(sorted(names)[:10]) + more


def accelerators(own: NodeRecord) -> str:
    """Check that the node has as many devices as its instance type should."""
    group = own.group
    wanted, there = group.accelerators, devices(group.gres)
    if there < wanted:
        raise Trouble(f"{there} of {wanted} {group.gres} devices in /dev")
    return f"{there} {group.gres} devices" if wanted else "none on this type"


def transport(own: NodeRecord) -> str:
    """Check that the transport is the best that the instance type supports."""
    group = own.group
    known = ("efa-rdma" if group.rdma_read else "efa-sendrecv") if group.efa == "yes" else own.transport
    probe = f"{own.probe.devices} EFA devices, RDMA read {own.probe.rdma_read} ({own.probe.source})"
    if group.accelerators and own.transport != known:
        raise Trouble(f"{own.transport}, but {group.instance_type} should have {known}; probe: {probe}")
    return own.transport


def role(_: NodeRecord) -> str:
    """Check that only root, and AWS's agents, get the node's role."""
    if why := metadata_guard.exposure(Host(Settings.from_environment())):
        raise Trouble(why)
    return "only root reaches instance metadata"


def lustre(own: NodeRecord) -> str:
    """Check that the file system is used over EFA if it and the instance type can."""
    wanted = own.group.lustre_efa_interfaces if own.parameters.fsx_efa else 0
    if not wanted:
        return "TCP, as the stack and the instance type have it"
    if os.geteuid() != 0:
        return "only root may ask LNet"
    up, sent = lnet(run(["lnetctl", "net", "show", "-v"], timeout=10))
    if up < wanted:
        raise Trouble(
            f"{up} of {wanted} EFA interfaces are up in LNet: TCP has the rest; systemctl restart hyperpod-lnet, and "
            "read step lnet of the node's summary"
        )
    if not sent["efa"] and sent["tcp"] >= TCP_ALONE:
        raise Trouble(
            f"all of {sent['tcp']} messages went over TCP: the security groups of nodes and file system must let each "
            "other's members in and out by group"
        )
    return f"{up} EFA interfaces; {sent['efa']} messages over EFA, {sent['tcp']} over TCP"


def lnet(text: str) -> Tuple[int, Dict[str, int]]:
    """Parse lnetctl's output: the EFA interfaces that are up, and the messages that each kind of net has sent."""
    up, net, sent = 0, "", {"efa": 0, "tcp": 0}
    for key, value in re.findall(r"\b(net type|status|send_count): (\w+)", text):
        if key == "net type":
            net = value.rstrip("0123456789")
        elif key == "status":
            up += net == "efa" and value == "up"
        elif net in sent:
            sent[net] += int(value)
    return up, sent


def commands(_: NodeRecord) -> str:
    """Check that the commands are installed."""
    missing = [n for n in ("run-nccl-test", "run-nccom-test", "run-nanogpt") if not os.access(f"{BIN}/{n}", os.X_OK)]
    if missing:
        raise Trouble(f"missing in {BIN}: {', '.join(missing)}")
    return BIN


CHECKS: List[Check] = [
    ("boot", boot), ("shared file system", shared), ("munge", munge), ("slurm", slurm), ("topology", topology),
    ("accelerators", accelerators), ("transport", transport), ("lustre network", lustre),
    ("metadata", role), ("commands", commands),
]  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    found = argparse.ArgumentParser(prog="hyperpod-validate", description=(__doc__ or "").split("\n")[0])
    found.add_argument("--json", action="store_true", help="print the result as JSON")
    return found


def main() -> int:
    """Run the checks."""
    options = parser().parse_args()
    try:
        own = record()
    except Trouble as trouble:
        print(f"hyperpod-validate: {trouble}", file=sys.stderr)
        return 2
    results = [(name, *_result(check, own)) for name, check in CHECKS]
    passed = all(good for _, good, _ in results)
    if options.json:
        checks = [{"name": name, "passed": good, "detail": detail} for name, good, detail in results]
        print(
            json.dumps(
                {"hostname": os.uname().nodename, "role": own.group.role, "passed": passed, "checks": checks}, indent=2
            )
        )
    else:
        for name, good, detail in results:
            print(f"{'PASS' if good else 'FAIL'}  {name:<18}  {detail}")
        print("PASS" if passed else "FAIL")
    return 0 if passed else 1


def _result(check: Callable[[NodeRecord], str], own: NodeRecord) -> Tuple[bool, str]:
    try:
        return True, check(own)
    except (Trouble, StepError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return False, str(error)


if __name__ == "__main__":
    sys.exit(main())

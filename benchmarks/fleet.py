"""How the program, what it generates and the verbs grow with nodes and groups, in the embedded account.

    venv/bin/python -m benchmarks.fleet [--part configuration,program,verbs] [--json FILE]

Each table compares its rows with each other, within one run. Calls are those to AWS; no call sleeps, and no node runs
here: what a session would print is made up, so the seconds of a verb are its own.
"""

import argparse
import base64
import gzip
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hyperpod_node.facts import parameters
from hyperpod_node.people.apply import digest as people_digest
from hyperpod_node.slurm import conf, extra_conf, gres, partitions, topology
from rich.console import Console
from rich.table import Table

from components.alerts import rule_groups
from components.common.names import Names, for_stack
from components.config import Config, parse
from components.kubernetes.teams import queues
from components.nodes import provisioning
from operations import applying
from operations.aws import Aws
from operations.cluster import health, sessions
from operations.cluster import nodes as cluster_nodes
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.cluster.validate import Validation
from operations.dashboards.panels import rendered
from operations.dashboards.shipped import of_stack
from operations.deployment.status import status
from operations.project.loading import Project, load_project
from operations.target import Target
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from rehearsal.served.api import serving

from .growth import faster_than_size

_ROOT = Path(__file__).parents[1]
SIZES = {
    "configuration": ((10, 10), (10, 100), (10, 1000), (10, 10000), (1, 1000), (98, 1000)),
    "program": ((10, 10), (98, 98), (1, 1000), (98, 10000)),
    "verbs": ((1, 10), (1, 100), (1, 1000)),
}
_KEY = "AKIAREHEARSAL"
Row = dict[str, float]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something grows worse than linearly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--part", default=",".join(SIZES), help=f"of {','.join(SIZES)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    found = {part: {size: _PARTS[part](*size) for size in SIZES[part]} for part in chosen.part.split(",")}
    for part, rows in found.items():
        show(part, rows)
    worse = [f"{part}: {name}" for part, rows in found.items() for name in faster_than_size(rows)]
    print("\n".join(f"worse than linear: {one}" for one in worse) or "nothing grows worse than linearly")
    if chosen.json:
        said = {
            part: [{"groups": g, "nodes": n, **row} for (g, n), row in rows.items()] for part, rows in found.items()
        }
        chosen.json.write_text(json.dumps(said, indent=2) + "\n")
    return 1 if worse else 0


def loaded(stack: str, groups: int, nodes: int) -> Project:
    """A ready stack with so many nodes in so many groups."""
    each, rest = divmod(nodes, groups)
    workers = [
        {"name": f"g{place}", "instanceType": "ml.g5.16xlarge", "count": each + (place < rest)}
        for place in range(groups)
    ]
    if stack.startswith("eks"):
        workers.append({"name": "system", "instanceType": "ml.m5.xlarge", "count": 3})
    network = json.dumps({"secondaryCidr": "100.64.0.0/16"})
    return load_project(_ROOT, stack, [f"hyperpod:workers={json.dumps(workers)}", f"hyperpod:network={network}"])


def configuration(groups: int, nodes: int) -> Row:
    """Seconds and bytes of what is generated from so many nodes."""
    slurm, eks = (_unchecked(loaded(stack, groups, nodes)) for stack in ("slurm-gpu", "eks-gpu"))
    names = _names(slurm)
    known = {one.name: one for one in provisioning.facts(slurm, names).instance_groups}
    workers = [one for one in slurm.worker_groups for _ in range(one.count)]
    hosts = [f"ip-10-{place >> 16}-{place >> 8 & 255}-{place & 255}" for place in range(nodes)]
    by_node = {host: known[one.name] for host, one in zip(hosts, workers, strict=True)}
    agent = "".join(f"NodeName={host} NodeAddr={host[3:].replace('-', '.')} CPUs=64 State=CLOUD\n" for host in hosts)
    tree = "".join(
        f"SwitchName=s{start} Nodes={','.join(hosts[start : start + 16])}\n" for start in range(0, nodes, 16)
    )

    def slurm_conf() -> str:
        text, _ = topology.settle(agent, {"topology.conf": tree, "topology.yaml": None}, hosts)
        text = partitions.with_features(gres.with_gres(text, by_node, known), by_node, known)
        return text + conf.render(conf.parse(text), known, by_node, "/opt") + partitions.render(known, by_node, ())

    makers: Mapping[str, Callable[[], str]] = {
        "hyperpod_parameters.json": lambda: provisioning.render(slurm, names),
        "slurm.conf": slurm_conf,
        "gres.conf": lambda: gres.render(by_node),
        "Kueue's objects": lambda: json.dumps(
            [queues.cluster_queue("team", eks.worker_groups, 1.0), *map(queues.flavor, eks.worker_groups)]
        ),
        "alert rules": lambda: rule_groups.namespace("c", "eks", "gpu", eks.worker_groups, 1),
        "dashboards": lambda: json.dumps([rendered(one) for one in of_stack(slurm.settings)]),
    }
    row: Row = {}
    for name, make in makers.items():
        began = time.perf_counter()
        size = len(make())
        row |= {f"{name}, ms": (time.perf_counter() - began) * 1000, f"{name}, KiB": size / 1024}
    return row


def program(groups: int, nodes: int) -> Row:
    """Seconds of a preview and of an up, each in a new account."""
    project = loaded("slurm-gpu", groups, nodes)
    row: Row = {}
    # The first preview of a process loads the schemas.
    for name, preview in (("loading", True), ("preview", True), ("up", False)):
        began = time.perf_counter()
        with Account(project.config["aws:region"]) as account:
            deployed = up(project, account, preview=preview)
            assert not deployed.failure, deployed.failure
        row[f"{name}, s"] = time.perf_counter() - began
    row.pop("loading, s")
    return row | {"resources": len(deployed.state)}


def verbs(groups: int, nodes: int) -> Row:
    """Calls to AWS and seconds of each verb."""
    project = loaded("slurm-gpu", groups, nodes)
    config = parse(project.config)
    row: Row = {}
    with Account(config.region.name) as account:
        deployed = up(project, account)
        assert not deployed.failure, deployed.failure
        with serving(account, config, project.stack, _KEY) as address, _environment(address):
            # The first call loads the services' models.
            status(Target(project, config, Aws(config.region.name)))
            for name, verb in _VERBS.items():
                aws = CountedAws(config.region.name)
                target = Target(project, config, aws)
                with patch.object(sessions, "run_remote", Nodes(target, aws.calls).run_remote):
                    began = time.perf_counter()
                    verb(target)
                    row[f"{name}, s"] = time.perf_counter() - began
                row[f"{name}, calls"] = sum(aws.calls.values())
                row[f"{name}, sessions"] = aws.calls["ssm StartSession"]
    return row


def _nodes(target: Target) -> None:
    cluster_nodes.with_states(target, cluster_nodes.list_nodes(target))


def _health(target: Target) -> None:
    found = health.ask(target, cluster_nodes.list_nodes(target), now=False)
    assert {one.status for one in found} == {"PASS"}, found[:2]


def _validate(target: Target) -> None:
    found = Validation(target).run()
    assert {one.result for one in found} == {"PASS"}, [one for one in found if one.result != "PASS"][:3]


def _apply(target: Target) -> None:
    for part in applying.parts(target):
        if part != applying.Part.DASHBOARDS:
            applied = applying.apply(target, part, dry_run=True)
            assert not applied.failure, applied.failure


_VERBS: Mapping[str, Callable[[Target], object]] = {
    "status": status,
    "node list": _nodes,
    "node health": _health,
    "validate": _validate,
    "apply": _apply,
}
_PARTS: Mapping[str, Callable[[int, int], Row]] = {
    "configuration": configuration,
    "program": program,
    "verbs": verbs,
}


class CountedAws(Aws):
    """AWS whose calls are counted, by service and operation."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self.calls: Counter[str] = Counter()

    def client(self, service: str, region: str | None = None) -> Any:
        """A client that counts."""
        client = super().client(service, region)
        client.meta.events.register("before-call", self._count, unique_id="count")
        return client

    def _count(self, model: Any, **_: Any) -> None:
        self.calls[f"{model.service_model.service_name} {model.name}"] += 1


class Nodes:
    """What the nodes would print, each in a session, or through Slurm in one with the controller."""

    def __init__(self, target: Target, calls: Counter[str]) -> None:
        self._target, self._calls, self._started = target, calls, Aws(target.aws.region)
        config, names = target.config, target.names
        people = parameters.parse_people(json.loads(provisioning.people_text(config, names)), "")
        lines = extra_conf.parse(provisioning.conf_text(config, names), "").files
        good = {"clock": {"status": "ok", "detail": ""}}
        self._answers = {
            "results.json": f"1000\n{json.dumps({'time': 999, 'checks': good, 'done': ''})}\n",
            "hyperpod-validate": json.dumps({"checks": [{"name": "boot", "passed": True, "detail": ""}]}),
            "hyperpod-users": json.dumps({"people": {}, "digest": people_digest(people)}),
            "hyperpod-slurm-config": json.dumps({"digest": extra_conf.digest(lines), "files": [], "changed": False}),
        }

    def run_remote(self, _target: Target, _node: Node, line: str, _seconds: float = 0, **_: object) -> Remote:
        """Session Manager's answer."""
        self._calls["ssm StartSession"] += 1
        if line.startswith("sinfo"):
            workers = [one for one in cluster_nodes.list_nodes(self._plain) if one.role == "worker"]
            gpus = "gpu:a10g:1" if "%G" in line else "none"
            return Remote(code=0, output="".join(f"{one.hostname}|idle|{gpus}\n" for one in workers))
        output = next(said for what, said in self._answers.items() if what in line)
        if mark := re.search(r"(\w+) \$SLURMD_NODENAME end", line):
            output = "".join(self._through_slurm(mark[1], output))
        return Remote(code=0, output=output)

    @property
    def _plain(self) -> Target:
        return Target(self._target.project, self._target.config, self._started)

    def _through_slurm(self, mark: str, output: str) -> Iterator[str]:
        text = base64.b64encode(gzip.compress(output.encode())).decode()
        for node in cluster_nodes.list_nodes(self._plain):
            if node.role == "worker":
                yield f"{mark} {node.hostname} {text}\n{mark} {node.hostname} end 0\n"


@contextmanager
def _environment(address: str) -> Iterator[None]:
    values = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": "rehearsal"}
    # The session of before has the credentials of before.
    with patch.dict(os.environ, values), patch("boto3.DEFAULT_SESSION", None):
        yield


def _unchecked(project: Project) -> Config:
    """The configuration, with sizes that a check may refuse."""
    with patch("components.config.load.unaffected", lambda *_: []):
        return parse(project.config)


def _names(config: Config) -> Names:
    return for_stack(
        cluster=config.settings.cluster_name, region=config.region.name, account="1" * 12, project="p", stack="s"
    )


def show(part: str, rows: Mapping[tuple[int, int], Row]) -> None:
    """Print a column for each size."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"{part}, {os.cpu_count()} cores")
    table.add_column("")
    for groups, nodes in rows:
        table.add_column(f"{nodes:,} in {groups}", justify="right")
    for name in next(iter(rows.values())):
        table.add_row(name, *(f"{row[name]:,.1f}" for row in rows.values()))
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())

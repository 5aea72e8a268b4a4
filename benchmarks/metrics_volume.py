"""How many series and samples nodes write, what they cost a month, and how long the alert rules take over them.

    venv/bin/python -m benchmarks.metrics_volume [--nodes 10,100,1000] [--json FILE] [--picture FILE]

Needs Debian's prometheus and prometheus-node-exporter (`make node-packages`). Counts come from the exporters' own
output: a real node_exporter's on this machine, and the nodes' writer's in tests/golden/figures. The rules of a Slurm
stack with ml.p5.48xlarge run in a real Prometheus, which scrapes the series that they read.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from hyperpod_node.metrics import collector, exporters

from components.catalogue.accelerators import CATALOGUE
from components.catalogue.prices import HOURS_PER_MONTH
from tests.metrics.fleet import Fleet, Timeline
from tests.metrics.test_programs import ask, free_port, running
from tests.metrics.test_rules import rules

from .picture import draw
from .sizes import say, show

_FIGURES = Path(__file__).parents[1] / "tests" / "golden" / "figures"
_TYPE = CATALOGUE["ml.p5.48xlarge"]
# Amazon Managed Service for Prometheus Pricing, samples ingested: up to so many a month, USD for 10 million.
_TIERS = ((2e9, 0.90), (252e9, 0.35), (float("inf"), 0.16))
# slurm_exporter's figures of one node, and of one rank of a job: of these no more are a node's.
_OF_NODE = re.compile(r"slurm_node_|hyperpod_training_")
# Devices of virtual machines and of simulated nodes; the lines with help.
_OTHERS = re.compile(r'^#|^$|device="(zram|ifb|veth|loop)')
# Amazon Managed Service for Prometheus evaluates rules once a minute where a group names no interval.
_RULES_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What so many nodes write, and what their rules take."""

    nodes: int
    series: int
    samples_a_second: float
    dollars_a_month: float
    read_by_rules: int
    rules_seconds: float
    slowest_group_seconds: float
    prometheus_mebibytes: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where the rules take longer than their interval."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.metrics_volume", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", default="10,100,1000", help="the sizes, separated by commas (default: 10,100,1000)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the growth (svg, png, pdf)")
    chosen = parser.parse_args(argv)
    each = series_of_a_node()
    found = [measure(nodes, sum(each.values())) for nodes in map(int, chosen.nodes.split(","))]
    print(f"series of a node, {_TYPE.name}: {sum(each.values())}: {', '.join(f'{k} {v}' for k, v in each.items())}")
    show(f"Metrics, {os.cpu_count()} cores", [asdict(one) for one in found])
    if chosen.json:
        chosen.json.write_text(json.dumps({"each": each, "sizes": [asdict(one) for one in found]}, indent=2) + "\n")
    if chosen.picture:
        names = ("samples_a_second", "dollars_a_month", "rules_seconds", "slowest_group_seconds")
        lines = {name.replace("_", " "): {one.nodes: asdict(one)[name] for one in found} for name in names}
        draw(lines, "Metrics", "nodes", chosen.picture)
    return 1 if any(one.rules_seconds > _RULES_SECONDS for one in found) else 0


def series_of_a_node() -> dict[str, int]:
    """The series of a p5 node with a job, by exporter."""
    here = node_exporter()
    of_cores = sum('cpu="' in line for line in here)
    cores = os.cpu_count() or 1
    return {
        "node_exporter": len(here) - of_cores + of_cores // cores * _TYPE.vcpus,
        "DCGM exporter": len(exporters.metrics_list("basic").splitlines()) * _TYPE.accelerators,
        "EFA": _figures("efa") * _TYPE.efa_interfaces,
        "Lustre": _figures("lustre"),
        "Slurm": _figures("slurm", first=True),
        "node and training": _figures("node") + _figures("training"),
    }


def node_exporter() -> list[str]:
    """The samples of this machine's, as lines, without devices that nodes do not have."""
    with running(
        ["prometheus-node-exporter", "--log.level=error", "--no-collector.softnet"], free_port(), ready=""
    ) as address:
        return [line for line in str(ask(f"{address}/metrics")).splitlines() if not _OTHERS.search(line)]


def _figures(name: str, *, first: bool = False) -> int:
    """The series of a file of figures. ``first``: of one node, where it has the whole cluster's."""
    found = yaml.safe_load((_FIGURES / f"{name}.yaml").read_text())
    if first:
        return sum(bool(_OF_NODE.match(metric)) for metric in found)
    return sum(max(1, text.count("{")) for text in found.values())


def measure(nodes: int, each: int, *, every: int = 20) -> Measured:
    """Cost by the prices, and the rules' seconds in a Prometheus that scrapes the nodes every so many seconds."""
    rate = nodes * each / collector.SECONDS
    fleet = Fleet("slurm-gpu", Timeline(1), nodes)
    lines = [_line(name, dict(labels), values) for (name, labels), values in fleet.series.items()]
    say(f"{nodes} nodes: {len(lines)} series for the rules")
    with tempfile.TemporaryDirectory() as folder, _serving("\n".join(lines) + "\n") as port:
        top = Path(folder)
        (top / "rules.yaml").write_text(rules("slurm-gpu"))
        job = {"job_name": "all", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        config = {
            "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{every}s"),
            "rule_files": [str(top / "rules.yaml")],
            "scrape_configs": [job],
        }
        (top / "prometheus.yaml").write_text(yaml.safe_dump(config))
        command = ["prometheus", f"--config.file={top}/prometheus.yaml", f"--storage.tsdb.path={top}/data"]
        with running(command, free_port()) as address:
            taken, memory = _evaluated(address, len(lines))
    return Measured(
        nodes=nodes,
        series=nodes * each,
        samples_a_second=round(rate, 1),
        dollars_a_month=round(cost(rate * 3600 * HOURS_PER_MONTH)),
        read_by_rules=len(lines),
        rules_seconds=round(sum(taken), 2),
        slowest_group_seconds=round(max(taken), 2),
        prometheus_mebibytes=round(memory / 2**20),
    )


def _evaluated(address: str, wanted: int) -> tuple[list[float], float]:
    """The seconds of each rule group's last evaluation over two scrapes of all series, and Prometheus' memory."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        scraped = ask(f"{address}/api/v1/query?query=count_over_time(scrape_samples_scraped[10m])")
        groups = ask(f"{address}/api/v1/rules")["data"]["groups"]
        if (found := scraped["data"]["result"]) and float(found[0]["value"][1]) >= 3:
            taken = [float(group["evaluationTime"]) for group in groups]
            memory = re.search(r"^process_resident_memory_bytes (\S+)", str(ask(f"{address}/metrics")), re.M)
            assert memory
            assert all(rule["health"] == "ok" for group in groups for rule in group["rules"])
            return taken, float(memory[1])
        time.sleep(1)
    raise SystemExit(f"Prometheus has not scraped {wanted} series three times in five minutes")


def cost(samples: float) -> float:
    """USD for so many samples a month."""
    dollars, below = 0.0, 0.0
    for upto, price in _TIERS:
        dollars += max(min(samples, upto) - below, 0.0) / 1e7 * price
        below = upto
    return dollars


def _line(name: str, labels: dict[str, str], values: str) -> str:
    told = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()))
    return f"{name}{{{told}}} {re.split('[x+ ]', values)[0]}"


@contextmanager
def _serving(text: str) -> Iterator[int]:
    """All nodes' exporters in one answer."""
    body = text.encode()

    class Exporters(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporters)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())

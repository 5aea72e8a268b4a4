"""A real Prometheus on made-up series, and what a panel asks it."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.operations.dashboards.fleet import CLUSTER, END, STEP

_NAME = re.compile(r"(?<![\w:$.\"])([a-zA-Z_:][\w:]*)(?=\{|\[)")


@dataclass(frozen=True)
class Target:
    """A query of a panel: what it asks, how it names series, and whether it asks for one instant."""

    board: str
    panel: str
    expr: str
    legend: str
    instant: bool


def targets(model: Mapping[str, Any]) -> Iterator[Target]:
    """Every query of a dashboard, with its variables filled in."""
    constants = {v["name"]: v["query"] for v in model["templating"]["list"] if v["type"] == "constant"}
    for panel in model["panels"]:
        for one in panel.get("targets", ()):
            expr = filled(one["expr"], constants)
            legend = one.get("legendFormat", "")
            yield Target(model["uid"], panel["title"], expr, legend, bool(one.get("instant")))


def filled(expr: str, constants: Mapping[str, str]) -> str:
    """An expression as Grafana sends it: everything chosen, an hour shown."""
    for name, value in constants.items():
        expr = expr.replace(f"${{{name}:raw}}", value)
    values = {"__rate_interval": f"{4 * STEP}s", "__range": "1h", "cluster": CLUSTER, "group": ".*", "node": ".*",
              "gpu": ".*"}  # fmt: skip
    return re.sub(r"\$(\w+)", lambda match: values[match.group(1)], expr)


def names(exprs: Iterable[str]) -> set[str]:
    """The metrics that expressions name."""
    return {name for expr in exprs for name in _NAME.findall(expr)}


class Prometheus:
    """One that runs, at an address of this machine."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, target: Target) -> list[dict[str, Any]]:
        """The series of the answer: an instant's, or the last hour's. Raises AssertionError with what it refuses."""
        asked: dict[str, Any] = {"query": target.expr}
        asked |= {"time": END} if target.instant else {"start": END - 3600, "end": END, "step": 2 * STEP}
        path = "query" if target.instant else "query_range"
        data = urlencode(asked).encode()
        try:
            with urlopen(f"{self._url}/api/v1/{path}", data=data, timeout=30) as answer:
                return list(json.load(answer)["data"]["result"])
        except URLError as error:
            said = error.read().decode() if hasattr(error, "read") else str(error)
            raise AssertionError(f"{target.board}, {target.panel}: {said}\n{target.expr}") from None


@contextmanager
def serving(text: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that has these series (OpenMetrics) and scrapes nothing."""
    (folder / "series.txt").write_text(text)
    (folder / "prometheus.yml").write_text("{}\n")
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    subprocess.run([*blocks, "series.txt", "data"], cwd=folder, check=True, capture_output=True, timeout=120)
    port = _free_port()
    # The blocks are older than Prometheus would keep them.
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error",
               "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "Prometheus ended"
        try:
            with urlopen(f"{url}/-/ready", timeout=5):
                return
        except URLError:
            time.sleep(0.1)
    raise AssertionError("Prometheus is not ready after 30 s")


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])

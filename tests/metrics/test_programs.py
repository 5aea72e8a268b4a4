"""The programs of Debian's Prometheus take what stacks give to Amazon's."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from components.alerts.alert_manager import configuration
from tests.metrics.test_rules import COUNTS, rules

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prometheus,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("prometheus-alertmanager")),
        reason="needs the Debian packages prometheus and prometheus-alertmanager (`make node-packages`)",
    ),
]
TOPIC = "arn:aws:sns:us-west-2:123456789012:demo"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def ask(url: str, body: Any = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=10) as answer:
        text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text


@contextmanager
def running(command: Sequence[str], port: int, *, ready: str = "-/ready") -> Iterator[str]:
    """A program that answers on loopback; its address. ``ready``: the path that answers from when it is."""
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(300):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            try:
                ask(f"{address}/{ready}")
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("it does not answer")
        yield address
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("variant", COUNTS)
def test_promtool_finds_nothing_wrong(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(rules(variant))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_loads_every_file_and_evaluates_each_rule_without_an_error(tmp_path: Path) -> None:
    for variant in COUNTS:
        (tmp_path / f"{variant}.rules.yaml").write_text(rules(variant))
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": [f"{tmp_path}/*.rules.yaml"]}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data"]
    wanted = sum(rules(variant).count("- record:") + rules(variant).count("- alert:") for variant in COUNTS)
    with running(command, free_port()) as address:
        for _ in range(100):
            groups = ask(f"{address}/api/v1/rules")["data"]["groups"]
            found = [rule for group in groups for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in found):
                break
            time.sleep(0.2)
    assert len(found) == wanted
    assert {rule["name"]: rule.get("lastError") for rule in found if rule["health"] != "ok"} == {}


def held_back(groups: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The labels of the alerts that another one holds back."""
    return [one["labels"] for group in groups for one in group["alerts"] if one["status"]["inhibitedBy"]]


def test_a_lost_node_s_warnings_are_held_back_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yaml"
    path.write_text(yaml.safe_dump(configuration(TOPIC, "us-west-2")))
    for arguments in (["check-config", str(path)], ["config", "routes", "test", f"--config.file={path}", "node=a"]):
        done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    sent = [
        {"alertname": name, "severity": severity, "cluster": cluster, "node": node}
        for name, severity, cluster, node in (
            ("NodeLost", "critical", "demo", "a"),
            ("ExporterDown", "warning", "demo", "a"),
            ("GpuXidReset", "critical", "demo", "a"),
            ("ExporterDown", "warning", "demo", "b"),
            # The same name in another cluster of the workspace.
            ("ExporterDown", "warning", "other", "a"),
        )
    ]
    command = ["prometheus-alertmanager", f"--config.file={path}", f"--storage.path={tmp_path}"]
    with running([*command, "--cluster.listen-address="], free_port()) as address:
        ask(f"{address}/api/v2/alerts", [{"labels": labels} for labels in sent])
        end = time.monotonic() + 30
        # It takes an alert first, and finds out a moment later what that one holds back.
        while not (held := held_back(groups := ask(f"{address}/api/v2/alerts/groups"))) and time.monotonic() < end:
            time.sleep(0.1)
    assert held == [sent[1]]
    # One message for each alert of a node.
    assert {tuple(sorted(group["labels"])) for group in groups} == {("alertname", "cluster", "node")}
    assert len(groups) == len(sent)

"""Scrapes the exporters and sends everything to the workspace: the CloudWatch agent of HyperPod's image.

It runs as a separate process, with separate files, so that HyperPod's configuration of the image's own agent stays as
it is. The commands are those of amazon-cloudwatch-agent-ctl and start-amazon-cloudwatch-agent
(github.com/aws/amazon-cloudwatch-agent, 2026-08): a translator makes the agent's two files from our one. It names the
second itself (tool/translator/translator.go, ``yamlConfigFileName``).
"""

from __future__ import annotations

import json
import re
from typing import Dict, List, Sequence, Tuple

from ..host.errors import StepError
from ..host.host import Host
from .exporters import Exporter

UNIT = "hyperpod-collector"
AGENT = "/opt/aws/amazon-cloudwatch-agent"
SECONDS = 30
_RUN = f"/run/{UNIT}"
_TEXT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Sends this node's metrics to Amazon Managed Service for Prometheus
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Restart=always
RestartSec=30
TimeoutStopSec=5
CPUQuota=50%
MemoryMax=512M
Nice=10
CPUWeight=10
Environment=GOMEMLIMIT=400MiB
RuntimeDirectory={unit}
RuntimeDirectoryMode=0700
ExecStartPre={agent}/bin/config-translator --input {folder}/none.json --input-dir {folder}/agent.d \
--output {run}/agent.toml --mode ec2 --config {agent}/etc/common-config.toml
ExecStart={agent}/bin/amazon-cloudwatch-agent -config {run}/agent.toml -otelconfig {run}/amazon-cloudwatch-agent.yaml \
-pidfile {run}/agent.pid
"""
_URL = re.compile(
    r"https:/{2}aps-workspaces\.([a-z0-9-]+)\.amazonaws\.com/workspaces/(ws-[A-Za-z0-9-]+)/api/v1/remote_write"
)


def folder(host: Host) -> str:
    """Return the folder of its files."""
    return f"{host.settings.state_folder}/collector"


def missing(host: Host) -> List[str]:
    """Return what it lacks on this node."""
    there = host.path(f"{AGENT}/bin/config-translator").exists()
    return [] if there else [f"no {AGENT}/bin/config-translator: nothing sends this node's metrics"]


def unit(host: Host) -> str:
    """Return the unit's text."""
    return _TEXT.format(unit=UNIT, agent=AGENT, folder=folder(host), run=_RUN)


def files(host: Host, url: str, exporters: Sequence[Exporter], labels: Dict[str, str]) -> Dict[str, str]:
    """Return its files: the agent's configuration, and its targets. Raises StepError for an unusable address."""
    region, workspace = destination(url)
    scrape_file = f"{folder(host)}/scrape.json"
    agent = {
        # Empty: to the unit's own output.
        "agent": {"region": region, "logfile": ""},
        "metrics": {
            "metrics_destinations": {"amp": {"workspace_id": workspace}},
            "metrics_collected": {"prometheus": {"prometheus_config_path": scrape_file}},
        },
    }
    return {f"{folder(host)}/agent.d/hyperpod.json": _json(agent), scrape_file: _json(scrape(exporters, labels))}


def destination(url: str) -> Tuple[str, str]:
    """Return region and workspace of an address, which the agent joins again itself."""
    found = _URL.fullmatch(url)
    if not found:
        raise StepError(f"the CloudWatch agent cannot write to {url}: it supports only workspaces of amazonaws.com")
    return found.group(1), found.group(2)


def scrape(exporters: Sequence[Exporter], labels: Dict[str, str]) -> Dict[str, object]:
    """Return Prometheus' configuration. Every series gets the labels; series about other nodes keep their own."""
    return {
        "global": {"scrape_interval": f"{SECONDS}s", "scrape_timeout": "10s"},
        "scrape_configs": [
            {
                "job_name": exporter.name,
                "honor_labels": exporter.name == "node_exporter",
                "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"], "labels": labels}],
            }
            for exporter in exporters
        ],
    }


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"

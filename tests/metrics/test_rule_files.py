"""What the rule files name, and what AWS takes of them."""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from components.alerts import eks_labels, rule_groups
from components.common.documents import load
from operations.dashboards.panels import rendered
from operations.dashboards.shipped import SHIPPED
from tests.metrics import cases
from tests.metrics.names import FOLDER, matchers, named, namespace, problems, published, rows, selectors
from tests.support import config

VARIANTS = ("slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")
ROOT = Path(__file__).parents[2]
Rule = Mapping[str, Any]


@cache
def groups(variant: str) -> list[dict[str, Any]]:
    """The groups that a stack of this variant gives its workspace."""
    found: list[dict[str, Any]] = load(namespace(config(variant), "demo"))["groups"]
    return found


def rules(variant: str) -> Iterator[Rule]:
    """Its rules."""
    for group in groups(variant):
        yield from group["rules"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_metric_and_label_in_a_rule_exists(variant: str) -> None:
    for rule in rules(variant):
        assert problems(rule["expr"]) == [], rule
        assert rule.get("record", "up") in published(), rule


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rule_reads_its_own_cluster_alone_and_never_instance(variant: str) -> None:
    for rule in rules(variant):
        for selector in selectors(promql.parse(rule["expr"])):
            asked = matchers(selector)
            assert "demo" in (asked.get("cluster"), asked.get("cluster_name")), f"{rule}: {selector}"
            assert "instance" not in asked, rule


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_alert_says_how_bad_it_is_what_to_do_and_where_to_read_on(variant: str) -> None:
    for rule in rules(variant):
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule
            assert set(rule["annotations"]) == {"summary", "action", "runbook"}, rule
            assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_groups_stay_within_the_quotas_of_the_service(variant: str) -> None:
    assert max(len(group["rules"]) for group in groups(variant)) <= rule_groups.RULES_PER_GROUP
    assert len(namespace(config(variant), "x" * 63).encode()) < rule_groups.NAMESPACE_BYTES / 10
    # Rule groups of a workspace, by default 100: room for seven stacks.
    assert len(groups(variant)) <= 14
    names = [group["name"] for group in groups(variant)]
    assert len(set(names)) == len(names)


def test_every_xid_is_in_one_class_by_nvidia_s_catalogue() -> None:
    classes = {
        rule["alert"]: set(re.findall(r"\d+", re.findall(r'xid[!=]~"([0-9|]+)"', rule["expr"])[0]))
        for rule in rules("slurm-gpu")
        if rule.get("alert", "").startswith("GpuXid")
    }
    for row in rows(ROOT / "lifecycle/hyperpod_node/health/xid.csv"):
        wanted = _class(row["action"])
        found = [alert for alert, codes in classes.items() if alert != "GpuXidOther" and row["xid"] in codes]
        # "Other" is everything that is not known here.
        assert found == ([wanted] if wanted else []), row
        # The catalogue says that no driver uses 14 and 108.
        known = wanted is not None or (row["action"] == "IGNORE" and row["xid"] not in ("14", "108"))
        assert (row["xid"] in classes["GpuXidOther"]) == known, row


def _class(action: str) -> str | None:
    if action.startswith("WORKFLOW") or action == "XID_154":
        return "GpuXidWorkflow"
    return {
        "RESTART_APP": "GpuXidRestartJob",
        "RESET_GPU": "GpuXidReset",
        "RESTART_BM": "GpuXidReboot",
        "RESTART_VM": "GpuXidReboot",
    }.get(action)


@pytest.mark.parametrize("variant", ["eks-gpu", "eks-trainium"])
def test_on_eks_every_exporter_s_metric_that_a_rule_reads_is_mapped(variant: str) -> None:
    mapped = set(eks_labels.METRICS) | {
        "hyperpod_node_info",
        "hyperpod_accelerators_expected",
        "hyperpod_efa_interfaces_expected",
    }
    # What only Slurm's nodes write: on EKS these alerts are silent.
    silent = ("lustre_", "hyperpod_lustre_", "hyperpod_exporter_up", "hyperpod_health_")
    for rule in rules(variant):
        for selector in selectors(promql.parse(rule["expr"])):
            for name in named(selector, published()):
                if "cluster_name" in matchers(selector) or ":" in name or name.startswith(silent):
                    continue
                if name.startswith(("node_", "DCGM_", "neuron", "execution_", "hardware_", "hyperpod_")):
                    assert name in mapped, f"{rule}: components/alerts/eks_metrics.csv lacks {name}"


def test_on_eks_every_exporter_s_metric_that_a_panel_reads_is_mapped() -> None:
    text = "".join(json.dumps(rendered(one)) for one in SHIPPED)
    read = set(re.findall(r"\b(?:DCGM|node|neuron|neuroncore|execution|hardware|kube|kueue)_\w+\b", text)) & set(
        published()
    )
    assert read - set(eks_labels.METRICS) == set()


def test_what_rules_read_of_gpus_is_in_the_list_that_slurm_s_nodes_export() -> None:
    shipped = {row["metric"] for row in rows(ROOT / "lifecycle" / "hyperpod_node" / "metrics" / "dcgm.csv")}
    read = {name for rule in rules("slurm-gpu") for name in re.findall(r"\bDCGM_\w+", rule["expr"])}
    assert len(read) > 10
    assert read - shipped == set()


def test_no_rule_looks_at_how_full_a_gpu_s_memory_is() -> None:
    assert not any("_FB_" in rule["expr"] for variant in VARIANTS for rule in rules(variant) if "alert" in rule)


def test_the_tables_of_metrics_have_no_doubles() -> None:
    for path in (FOLDER / "published").glob("*.csv"):
        with path.open(newline="") as file:
            first = [line[0] for line in csv.reader(file)]
        assert len(set(first)) == len(first), path.name


def test_the_runbook_has_every_alert_and_nothing_else() -> None:
    text = (ROOT / "docs" / "alerts.md").read_text()
    alerts = {rule["alert"]: rule for variant in VARIANTS for rule in rules(variant) if "alert" in rule}
    sections = dict(re.findall(r"^### (\w+)\n(.+?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(alerts)
    for name, section in sections.items():
        rule = alerts[name]
        severity = f"**{rule['labels']['severity']}**" + (f" after {rule['for']}" if "for" in rule else "")
        assert section.startswith(f"\n{severity}. "), f"{name}: {severity}"
        assert [word for word in ("Look at", "Do") if f"* **{word}**: " not in section] == [], name


def test_every_alert_has_a_case() -> None:
    alerts = {rule["alert"] for variant in VARIANTS for rule in rules(variant) if "alert" in rule}
    assert {case.alert for case in cases.CASES} - {""} | set(cases.SLOW) == alerts

"""The rules on a made-up fleet: every alert is silent before its fault and after it, and on the right node only."""

import shutil
from collections.abc import Mapping
from functools import cache

import pytest

from operations.spending.usage import held
from tests.metrics import cases
from tests.metrics.fleet import BEGIN, CLUSTER, TYPES, Fleet, Timeline
from tests.metrics.names import namespace
from tests.metrics.promtool import Labels, answers, firing
from tests.shared import made_once
from tests.support import config

MINUTES = 100
# Of Slurm with GPUs there are 64 nodes of 8; the other variants share most rules.
COUNTS = {"slurm-gpu": 64, "slurm-trainium": 18, "eks-gpu": 17, "eks-trainium": 12}
needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="needs the Debian package prometheus (`make node-packages`)"
)
pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]


def rules(variant: str) -> str:
    """What a stack of this variant gives its workspace."""
    kinds = TYPES[variant]
    workers = [{"name": name, "instanceType": kind, "count": 1} for name, kind in kinds.items()]
    return namespace(config(variant, workers=workers), CLUSTER)


def broken_fleet(variant: str) -> Fleet:
    """A fleet in which everything goes wrong at once, each on a node of its own."""
    fleet = Fleet(variant, Timeline(MINUTES), COUNTS[variant])
    for case, node in zip(cases.of(variant), fleet.nodes, strict=False):
        case.fault(fleet, node)
    return fleet


@cache
def alerts(variant: str) -> Mapping[str, Mapping[int, set[Labels]]]:
    """Which alerts fire at which minutes of that fleet."""
    return made_once(f"alerts of {variant}", lambda: dict(firing(rules(variant), broken_fleet(variant))))


def expected(variant: str, alert: str) -> list[dict[str, str]]:
    """Where an alert must fire, and nowhere else."""
    fleet = Fleet(variant, Timeline(1), COUNTS[variant])
    pairs = zip(cases.of(variant), fleet.nodes, strict=False)
    return [case.labels(node) for case, node in pairs if case.alert == alert]


@pytest.mark.parametrize("variant", COUNTS)
def test_every_fault_fires_its_alert_there_and_only_there(variant: str) -> None:
    assert len(cases.of(variant)) <= COUNTS[variant] - 2
    fired = alerts(variant)
    problems = []
    for alert in {case.alert for case in cases.of(variant)} | set(fired):
        found = set().union(*fired.get(alert, {}).values())
        wanted = [frozenset(labels.items()) for labels in expected(variant, alert)] if alert else []
        problems += [f"{alert} is silent for {dict(one)}" for one in wanted if not any(one <= got for got in found)]
        problems += [f"{alert} fires for {dict(got)}" for got in found if not any(one <= got for one in wanted)]
    assert sorted(problems) == []


@pytest.mark.parametrize("variant", COUNTS)
def test_nothing_fires_before_its_fault_or_long_after_it(variant: str) -> None:
    fired = alerts(variant)
    assert {alert: min(minutes) for alert, minutes in fired.items() if min(minutes) < BEGIN} == {}
    assert {alert: max(minutes) for alert, minutes in fired.items() if max(minutes) >= MINUTES} == {}


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_a_gpu_is_of_its_node(label: str) -> None:
    # NVIDIA/dcgm-exporter, internal/pkg/rendermetrics/render_metrics.go: up to 4.5.3-4.8.2, and after it.
    fleet = Fleet("eks-gpu", Timeline(20), 1)
    fleet.series = {
        (name, frozenset((label if key == "Hostname" else key, value) for key, value in labels)): values
        for (name, labels), values in fleet.series.items()
    }
    (found,) = answers(rules("eks-gpu"), fleet, [('DCGM_FI_DEV_GPU_TEMP{cluster="demo"}', 16)])
    assert len(found) == fleet.nodes[0].type.accelerators
    assert {dict(labels)["node"] for labels in found} == {fleet.nodes[0].name}


def test_the_last_code_counts_for_a_while_though_each_code_is_a_series_of_its_own() -> None:
    # NVIDIA/dcgm-exporter 4.1.1-4.0.4, internal/pkg/collector/gpu_collector.go: the labels err_code and err_msg.
    fleet = Fleet("eks-gpu", Timeline(60), 1)
    cases.xid(79)(fleet, fleet.nodes[0])
    asked = [("hyperpod:gpu_xids", minute) for minute in (BEGIN - 2, BEGIN + 6, BEGIN + 30)]
    before, then, later = answers(rules("eks-gpu"), fleet, asked)
    assert [dict(labels)["xid"] for labels in then] == ["79"]
    assert [dict(labels)["gpu"] for labels in then] == ["5"]
    assert before == later == {}


@pytest.mark.parametrize(("variant", "devices"), [("eks-gpu", 8), ("eks-trainium", 16)])
def test_running_pods_pay_for_what_they_request(variant: str, devices: int) -> None:
    fleet = Fleet(variant, Timeline(MINUTES), 5)
    kind = fleet.nodes[0].type.name
    # Of three nodes with a pod, one's waits for half an hour of the one that is asked for.
    waiting = {"phase": "Running", "namespace": "team", "pod": f"pod-{fleet.nodes[0].address}"}
    fleet.set("kube_pod_status_phase", fleet.time.during(1, 0, 40, 70), **waiting)
    # A second kube-state-metrics, or a container without devices, adds nothing.
    (again,) = [key for key in fleet.series if key[0].endswith("requests") and ("pod", waiting["pod"]) in key[1]]
    fleet.series[again[0], again[1] | {("instance", "other")}] = fleet.series[again]
    (found,) = answers(rules(variant), fleet, [(held(CLUSTER, 3600), 90)])
    assert found == {frozenset({("namespace", "team"), ("instance_type", kind)}): pytest.approx(2.5 * devices)}

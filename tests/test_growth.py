"""The benchmarks of size, in small: what they call growth, and that each part of benchmarks/fleet.py runs."""

import shutil

import pytest

from benchmarks import fleet, kubernetes_nodes, metrics_volume
from benchmarks.growth import faster_than_size
from rehearsal.kubernetes.binaries import missing
from rehearsal.kubernetes.container import available
from tests.support import few_files


def test_only_what_grows_faster_than_the_size_is_named() -> None:
    rows = {
        (1, 10): {"fixed, s": 3.0, "linear": 5.0, "square": 1.0, "noise, ms": 1.0},
        (1, 100): {"fixed, s": 3.0, "linear": 50.0, "square": 100.0, "noise, ms": 19.0},
        (10, 100): {"fixed, s": 3.0, "linear": 500.0, "square": 100.0, "noise, ms": 19.0},
    }
    assert list(faster_than_size(rows)) == ["square: 1.0 with (1, 10) groups and nodes, 100.0 with (1, 100)"]


def test_generated_configuration_names_each_node_once() -> None:
    few, many = fleet.configuration(2, 10), fleet.configuration(2, 40)
    assert many["hyperpod_parameters.json, KiB"] == few["hyperpod_parameters.json, KiB"]
    assert 0 < many["slurm.conf, KiB"] - few["slurm.conf, KiB"] < 30 * 0.15


@pytest.mark.slow
def test_ninety_nodes_are_a_page_and_eight_sessions() -> None:
    with few_files():
        found = fleet.verbs(1, 90)
    calls = {name: value for name, value in found.items() if name.endswith(", calls")}
    assert calls == {
        "status, calls": 3,
        "node list, calls": 4,
        "node health, calls": 4,
        "validate, calls": 10,
        "apply, calls": 7,
    }
    assert sum(value for name, value in found.items() if name.endswith(", sessions")) == 8


@pytest.mark.slow
def test_more_groups_are_no_more_resources() -> None:
    with few_files():
        assert fleet.program(3, 3)["resources"] < 210


@pytest.mark.slow
@pytest.mark.prometheus
@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-node-exporter")),
    reason="needs the Debian packages prometheus and prometheus-node-exporter (`make node-packages`)",
)
def test_a_real_prometheus_evaluates_the_rules_over_a_nodes_series() -> None:
    found = metrics_volume.measure(8, 4000, every=2)
    assert found.series == 32_000
    assert 0 < found.rules_seconds < 20
    assert found.read_by_rules > 8 * 200


def test_samples_cost_less_in_each_tier() -> None:
    assert [round(metrics_volume.cost(samples)) for samples in (2e9, 3e9, 252e9, 253e9)] == [180, 215, 8930, 8946]


@pytest.mark.kubernetes
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(missing()) or not available(), reason="`make kubernetes-tools` was not run here")
def test_kueue_gives_a_gang_all_nodes_and_the_teams_their_shares_back() -> None:
    found = kubernetes_nodes.measure(10)
    assert found.pods >= 9
    assert found.gang_admitted_seconds <= found.gang_placed_seconds

"""The benchmarks of size, in small: what they call growth, and that each part of benchmarks/fleet.py runs."""

from __future__ import annotations

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
def test_verbs_ask_no_more_of_aws_for_more_nodes() -> None:
    with few_files():
        few, many = fleet.verbs(1, 9), fleet.verbs(1, 90)
    calls = {name: (few[name], many[name]) for name in few if not name.endswith(", s")}
    assert {name for name, (before, after) in calls.items() if before != after} == set(), calls


@pytest.mark.slow
def test_the_program_is_measured_with_all_its_groups() -> None:
    with few_files():
        assert fleet.program(2, 2)["resources"] == fleet.program(3, 3)["resources"]


@pytest.mark.slow
@pytest.mark.prometheus
@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-node-exporter")),
    reason="needs the Debian packages prometheus and prometheus-node-exporter (`make node-packages`)",
)
def test_a_real_prometheus_evaluates_the_rules_over_a_nodes_series() -> None:
    found = metrics_volume.measure(8, 4000)
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

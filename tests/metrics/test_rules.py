"""Every alert, on a fleet: silent before the fault, on the right node and only there, and silent after it."""

import shutil
from collections.abc import Mapping
from functools import cache

import pytest

from tests.metrics import cases
from tests.metrics.fleet import BEGIN, CLUSTER, TYPES, Fleet, Timeline
from tests.metrics.names import namespace
from tests.metrics.promtool import Labels, firing
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

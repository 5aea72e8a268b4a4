"""Every question of every panel has an answer: a real Prometheus has series under the published names and labels."""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from operations.dashboards.panels import rendered
from operations.dashboards.shipped import BY_NAME, SHIPPED, Shipped
from tests.operations.dashboards.fleet import Fleet
from tests.operations.dashboards.prometheus import Prometheus, Target, names, serving, targets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prometheus,
    pytest.mark.skipif(not shutil.which("promtool"), reason="needs Debian's prometheus (`make node-packages`)"),
]

_P5 = 66.048
_M5 = 0.461


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Three workers with four GPUs each: the first half free, the second ill, the third gone for twenty minutes."""
    wanted = names(target.expr for one in SHIPPED for target in targets(rendered(one)))
    with serving(Fleet().text(wanted), tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda one: one.name)
def test_no_panel_is_empty_and_every_legend_is_filled(shipped: Shipped, prometheus: Prometheus) -> None:
    asked = list(targets(rendered(shipped)))
    assert asked
    for target in asked:
        found = prometheus.ask(target)
        assert found, f"no data: {target.panel}: {target.expr}"
        labels = {label for one in found for label, value in one["metric"].items() if value}
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target.legend))
        assert wanted <= labels, f"{target.panel}: no series has {wanted - labels}"


def ask(prometheus: Prometheus, board: str, panel: str, place: int = 0) -> dict[str, float]:
    """The latest values of a panel, by node or by what else names a series."""
    found = [one for one in targets(rendered(BY_NAME[board])) if one.panel == panel][place]
    return {name(one["metric"]): latest(one) for one in prometheus.ask(found)}


def name(labels: dict[str, str]) -> str:
    return labels.get("node") or labels.get("group") or labels.get("hpc_job") or ""


def latest(one: dict[str, Any]) -> float:
    return float((one.get("value") or one["values"][-1])[1])


def test_the_overview_names_who_is_lost_idle_and_ill(prometheus: Prometheus) -> None:
    assert ask(prometheus, "overview", "Nodes that stopped reporting in the last hour") == {"workers-3": 1200}
    assert list(ask(prometheus, "overview", "Allocated, and less than a tenth busy")) == ["workers-2"]
    assert list(ask(prometheus, "overview", "Failed health checks", 1)) == ["workers-2"]


def test_gpu_health_names_the_one_gpu(prometheus: Prometheus) -> None:
    (found,) = (one for one in targets(rendered(BY_NAME["gpu-health"])) if one.panel == "XIDs in the exporter's window")
    assert [one["metric"] for one in prometheus.ask(found)] == [{"node": "workers-2", "gpu": "1", "xid": "94"}]


def test_dollars_are_prices_times_nodes_and_shares(prometheus: Prometheus) -> None:
    hourly = ask(prometheus, "cost", "An hour, all")
    # The third worker reports no more; of the first, half is free.
    assert hourly[""] == pytest.approx(2 * _P5 + _M5)
    assert ask(prometheus, "cost", "An hour, of it idle")[""] == pytest.approx(_P5 / 2)
    assert ask(prometheus, "cost", "Idle, ten dearest nodes, an hour") == {"workers-1": pytest.approx(_P5 / 2)}
    parts = [ask(prometheus, "cost", "What an hour's dollars do", place)[""] for place in range(4)]
    assert parts[2:] == pytest.approx([_P5 / 2, _M5])
    assert sum(parts) == pytest.approx(hourly[""])


def test_a_question_that_prometheus_refuses_fails_with_the_panel(prometheus: Prometheus) -> None:
    with pytest.raises(AssertionError, match="made-up, broken"):
        prometheus.ask(Target("made-up", "broken", "sum(", "", instant=True))

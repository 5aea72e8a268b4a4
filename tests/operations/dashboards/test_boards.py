"""The dashboards: their JSON is what the files describe, each fits its stacks, and every panel can be read."""

import re
from collections import Counter
from typing import Any

import pytest
from hyperpod_node.metrics import slurm
from hyperpod_node.metrics.slurm import parse_diag

from components.common.documents import load
from operations.dashboards.panels import BOARDS, COLUMNS, price, rendered
from operations.dashboards.shipped import BY_NAME, SHIPPED, Shipped, of_stack
from operations.target import load as chosen
from tests.golden.dashboards import DIGESTS, digests
from tests.lifecycle.metrics.test_writer import SDIAG
from tests.metrics.names import problems, rows
from tests.operations.dashboards.prometheus import names, targets
from tests.support import ROOT

# Panels that show values, and so need a unit and colours.
_VALUES = ("timeseries", "stat", "bargauge", "table", "state-timeline")


def test_the_boards_give_what_the_golden_digests_say() -> None:
    """A change of a panel shows in its file. The digests show a change that nobody meant: Grafana's SDK, a price."""
    assert load(DIGESTS.read_text()) == digests(), "make golden"


def test_every_dashboard_has_a_board() -> None:
    assert {path.stem for path in BOARDS.glob("*.yaml")} == {one.name for one in SHIPPED}


def test_uids_are_fixed_and_ids_are_grafanas() -> None:
    for one in SHIPPED:
        model = rendered(one)
        assert model["uid"] == f"hyperpod-{one.name}"
        assert len(model["uid"]) <= 40
        assert "id" not in model
        assert set(Counter(panel["id"] for panel in model["panels"]).values()) == {1}


@pytest.mark.parametrize(
    ("stack", "missing"),
    [
        ("slurm-gpu", {"neuron", "kubernetes"}),
        ("slurm-trainium", {"gpu", "gpu-health", "kubernetes"}),
        ("eks-gpu", {"neuron", "slurm"}),
        ("eks-trainium", {"gpu", "gpu-health", "slurm"}),
    ],
)
def test_a_stack_gets_the_pages_of_its_scheduler_and_accelerator(stack: str, missing: set[str]) -> None:
    found = {one.name for one in of_stack(chosen(stack).config.settings)}
    assert found == {one.name for one in SHIPPED} - missing


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda one: one.name)
def test_panels_fill_24_columns_without_overlap(shipped: Shipped) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in rendered(shipped)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    bottom = max(y for _, y in taken)
    ragged = {y for y in range(bottom + 1) if sum((x, y) in taken for x in range(COLUMNS)) != COLUMNS}
    assert not ragged, "a row of panels leaves a gap"


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda one: one.name)
def test_panels_have_a_unit_thresholds_and_a_name_for_each_series(shipped: Shipped) -> None:
    for panel in rendered(shipped)["panels"]:
        if panel["type"] not in _VALUES:
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], panel["title"]
        values = [step["value"] for step in defaults["thresholds"]["steps"]]
        assert values[0] is None
        assert values[1:] == sorted(values[1:]), panel["title"]
        for target in panel["targets"]:
            assert target.get("legendFormat") or panel["type"] in ("stat", "table"), panel["title"]
            assert target["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda one: one.name)
def test_variables_are_those_of_every_page_and_each_is_used(shipped: Shipped) -> None:
    model = rendered(shipped)
    names = [variable["name"] for variable in model["templating"]["list"]]
    assert names[:4] == ["datasource", "cluster", "group", "node"]
    text = str(model["panels"]) + str(model["templating"])
    assert [name for name in names if f"${name}" not in text and f"${{{name}" not in text] == []
    asked = {name for name in re.findall(r"\$\{?(\w+)", text) if not name.startswith("__")}
    assert asked == set(names)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda one: one.name)
def test_no_panel_names_a_metric_or_label_that_nothing_gives(shipped: Shipped) -> None:
    found = {f"{one.panel}: {said}" for one in targets(rendered(shipped)) for said in problems(one.expr)}
    assert not found


def test_every_page_says_what_it_cannot_show() -> None:
    for one in SHIPPED:
        texts = [_content(panel) for panel in rendered(one)["panels"] if panel["type"] == "text"]
        assert len(texts) == 1, one.name


def test_prices_are_the_catalogues() -> None:
    assert 'label_replace(vector(66.048), "instance_type", "ml.p5.48xlarge", "", "")' in price()
    (content,) = (_content(panel) for panel in rendered(SHIPPED[-1])["panels"] if panel["type"] == "text")
    assert "list prices of us-east-1" in content
    assert "ml.trn2." in content, "the family is sold in capacity blocks only"
    assert "ml.p5.4xlarge" in content, "EC2's rate stands for HyperPod's, of this type and not of its family"
    assert "ml.m7i" not in price(), "a processor's type without a rate of HyperPod's counts as a node without a price"


def _content(panel: dict[str, Any]) -> str:
    return str(panel["options"]["content"])


def test_the_controllers_writer_gives_what_panels_ask_of_slurm() -> None:
    nodes = slurm.parse_nodes("n|dev|idle|0/64/0/64|gpu:8|gpu:0|1000|0|500|")
    parts = (*slurm.node_families(nodes, {"n": "workers"}), *slurm.job_families([], nodes, 0), *parse_diag(SDIAG))
    asked = {name for one in targets(rendered(BY_NAME["slurm"])) for name in names([one.expr])}
    assert {name for name in asked if not name.startswith("hyperpod:")} <= {part.name for part in parts}


def test_the_list_for_dcgm_has_what_panels_ask_of_gpus() -> None:
    asked = {name for shipped in SHIPPED for one in targets(rendered(shipped)) for name in names([one.expr])}
    shipped = {row["metric"] for row in rows(ROOT / "lifecycle" / "hyperpod_node" / "metrics" / "dcgm.csv")}
    assert {name for name in asked if name.startswith("DCGM_")} <= shipped

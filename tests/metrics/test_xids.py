"""XIDs where the exporter gives the last code alone, as AWS's add-on of EKS has it."""

import pytest

from tests.metrics import cases
from tests.metrics.fleet import BEGIN, Fleet, Timeline
from tests.metrics.promtool import answers
from tests.metrics.test_rules import needs_promtool, rules

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]


def test_the_last_code_counts_for_a_while_though_each_code_is_a_series_of_its_own() -> None:
    # NVIDIA/dcgm-exporter 4.1.1-4.0.4, internal/pkg/collector/gpu_collector.go: the labels err_code and err_msg.
    fleet = Fleet("eks-gpu", Timeline(60), 1)
    cases.xid(79)(fleet, fleet.nodes[0])
    asked = [("hyperpod:gpu_xids", minute) for minute in (BEGIN - 2, BEGIN + 6, BEGIN + 30)]
    before, then, later = answers(rules("eks-gpu"), fleet, asked)
    assert [dict(labels)["xid"] for labels in then] == ["79"]
    assert [dict(labels)["gpu"] for labels in then] == ["5"]
    assert before == later == {}

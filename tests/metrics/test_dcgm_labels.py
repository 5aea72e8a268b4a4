"""DCGM's series of EKS get their node, by whichever name an exporter's version has for it."""

import pytest

from tests.metrics.fleet import Fleet, Timeline
from tests.metrics.promtool import answers
from tests.metrics.test_rules import needs_promtool, rules

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]


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

"""Hours of accelerators by team, as Prometheus itself adds them up over a made-up fleet."""

import pytest

from operations.spending.usage import held
from tests.metrics.fleet import CLUSTER, Fleet, Timeline
from tests.metrics.promtool import answers
from tests.metrics.test_rules import MINUTES, needs_promtool, rules

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]


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

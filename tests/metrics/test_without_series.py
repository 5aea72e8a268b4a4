"""What panels and rules say of nodes that lack a series: a figure of 0 where that is meant, and no false alarm."""

import pytest

from operations.dashboards.panels import rendered
from operations.dashboards.shipped import BY_NAME
from tests.metrics import cases
from tests.metrics.fleet import BEGIN, CLUSTER, Fleet, Timeline
from tests.metrics.promtool import answers, firing
from tests.metrics.test_rules import needs_promtool, rules
from tests.operations.dashboards import fleet as shown
from tests.operations.dashboards.prometheus import targets

pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]
# Of trn1.32xlarge: Neuron devices (AWS, "Amazon EC2 Trn1 Architecture").
DEVICES = 16


def query(board: str, panel: str, place: int = 0) -> str:
    """What a panel asks of the made-up fleet, with a label for answers that have none."""
    found = [one.expr for one in targets(rendered(BY_NAME[board])) if one.panel == panel][place]
    return f'label_replace({found.replace(shown.CLUSTER, CLUSTER)}, "answer", "here", "", "")'


def trainium() -> Fleet:
    """Two free nodes and two that jobs hold, of which the second has no runtime."""
    fleet = Fleet("slurm-trainium", Timeline(40), 4)
    lost = [key for key in fleet.series if key[0] == "neuroncore_utilization_ratio"]
    for key in lost:
        if ("node", fleet.nodes[1].name) in key[1]:
            del fleet.series[key]
    return fleet


def test_a_trainium_node_without_a_runtime_is_idle_and_its_dollars_are_not_lost() -> None:
    parts = "What an hour's dollars do"
    asked = [
        *(query("cost", parts, place) for place in range(3)),
        query("cost", "An hour, all"),
        query("overview", "Accelerators: total, allocated, busy", 2),
        query("overview", "Allocated, and less than a tenth busy"),
    ]
    fleet = trainium()
    *dollars, hour, busy, idle = answers(rules("slurm-trainium"), fleet, [(one, 36) for one in asked])
    working, waiting, free, whole = (sum(one.values()) for one in (*dollars, hour))
    assert whole > 0
    # One works nine tenths of the time, one waits, two are free.
    assert [working, waiting, free] == pytest.approx([whole / 4 * 0.9, whole / 4 * 1.1, whole / 2])
    assert sum(busy.values()) == pytest.approx(DEVICES * 0.9)
    assert [dict(labels)["node"] for labels in idle] == [fleet.nodes[1].name]


def test_a_node_without_any_efa_device_is_one_with_too_few() -> None:
    fleet = Fleet("slurm-gpu", Timeline(100), 1)
    cases.no_efa(fleet, fleet.nodes[0])
    asked = query("efa", "Nodes with fewer devices than they should have")
    before, then = answers(rules("slurm-gpu"), fleet, [(asked, BEGIN - 4), (asked, BEGIN + 8)])
    assert [sum(before.values()), sum(then.values())] == [0, 1]


def test_bytes_of_nodes_that_only_read_count_for_the_file_system() -> None:
    # Lustre's lprocfs_stats_seq_show leaves out counters that are 0.
    fleet = Fleet("slurm-gpu", Timeline(100), 1)
    cases.shared_busy(fleet, fleet.nodes[0])
    fleet.series = {key: values for key, values in fleet.series.items() if key[0] != "lustre_write_bytes_total"}
    assert "SharedStorageBusy" in firing(rules("slurm-gpu"), fleet)


def test_a_mount_that_ends_with_its_pod_is_not_lost() -> None:
    # Kubernetes, "Volumes": the kubelet has a pod's CSI volumes there; node_exporter leaves none of them out by itself.
    fleet = Fleet("eks-gpu", Timeline(100), 1)
    pods = "/var/lib/kubelet/pods/2f1c/volumes/kubernetes.io~csi/fsx/mount"
    kept = {key: values for key, values in fleet.series.items() if ("fstype", "lustre") not in key[1]}
    fleet.series = kept
    labels = {"mountpoint": pods, "device": "10.1.9.9@tcp:/abcdefgh", "fstype": "lustre"}
    fleet.add("node_filesystem_size_bytes", fleet.time.during(100, None), fleet.nodes[0], **labels)
    assert "LustreMountLost" not in firing(rules("eks-gpu"), fleet)
    fleet.series = dict(kept)
    fleet.add(
        "node_filesystem_size_bytes", fleet.time.during(100, None), fleet.nodes[0], **{**labels, "mountpoint": "/fsx"}
    )
    assert "LustreMountLost" in firing(rules("eks-gpu"), fleet)

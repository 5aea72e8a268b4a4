"""A made-up fleet: the series of every exporter on every node, minute by minute, healthy unless a case says otherwise.

On Slurm nodes they carry this project's labels, on EKS those of the add-on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from components.catalogue.accelerators import CATALOGUE, InstanceType
from tests.metrics.names import addon, published

CLUSTER = "demo"
# Of a node's EFA interfaces, those that count packets here.
_COUNTING = 2
TYPES = {
    "slurm-gpu": {"workers": "ml.p5.48xlarge", "more": "ml.p4d.24xlarge"},
    "eks-gpu": {"workers": "ml.p4d.24xlarge", "more": "ml.p4d.24xlarge"},
    "slurm-trainium": {"workers": "ml.trn1.32xlarge", "more": "ml.trn1.32xlarge"},
    "eks-trainium": {"workers": "ml.trn1.32xlarge", "more": "ml.trn1.32xlarge"},
}
# Faults begin and end at these minutes, where a case does not say otherwise.
BEGIN, END = 20, 70


@dataclass(frozen=True)
class Timeline:
    """How many minutes there are, and values over them in promtool's notation."""

    minutes: int

    def constant(self, value: float) -> str:
        return f"{value}x{self.minutes}"

    def growing(self, step: float, start: float = 0) -> str:
        return f"{start}+{step}x{self.minutes}"

    def during(self, usual: float, fault: float | None, begin: int = BEGIN, end: int = END) -> str:
        """A gauge that is different for a while; None for no sample."""
        wrong = f"_x{end - begin}" if fault is None else f"{fault}x{end - begin - 1}"
        return f"{usual}x{begin - 1} {wrong} {usual}x{self.minutes - end}"

    def jump(self, by: float, at: int = BEGIN, start: float = 0) -> str:
        """A counter that jumps once."""
        return f"{start}x{at - 1} {start + by}x{self.minutes - at}"

    def faster(self, step: float, fault: float, begin: int = BEGIN, end: int = END) -> str:
        """A counter that grows by ``step`` a minute, and differently for a while."""
        first, second = step * begin, step * begin + fault * (end - begin)
        return f"0+{step}x{begin - 1} {first}+{fault}x{end - begin - 1} {second}+{step}x{self.minutes - end}"

    def born(self, value: float, at: int = BEGIN) -> str:
        """A series that begins late, with a value."""
        return f"_x{at} {value}x{self.minutes - at}"

    def ended(self, value: float, at: int = BEGIN) -> str:
        """A series that its exporter no longer gives."""
        return f"{value}x{at - 1} stale"

    def short_lived(self, value: float, begin: int = BEGIN, end: int = BEGIN + 5) -> str:
        """A series that begins late and ends soon."""
        return f"_x{begin} {value}x{end - begin - 1} _x{self.minutes - end}"


@dataclass(frozen=True)
class Node:
    """A node, its group, and whether a job holds it."""

    name: str
    group: str
    address: str
    type: InstanceType
    allocated: bool

    @property
    def labels(self) -> dict[str, str]:
        """By what alerts name it."""
        return {"cluster": CLUSTER, "node": self.name, "group": self.group}


@dataclass
class Fleet:
    """Nodes and their series: by name and labels, values."""

    variant: str
    time: Timeline
    count: int = 64
    series: dict[tuple[str, frozenset[tuple[str, str]]], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = [self._node(number) for number in range(self.count)]
        for build in (_host, _efa, *_BUILDERS[self.variant]):
            for node in self.nodes:
                build(self, node)
        _CENTRAL[self.orchestrator](self)

    @property
    def orchestrator(self) -> str:
        return self.variant.partition("-")[0]

    def _node(self, number: int) -> Node:
        name = f"ip-10-1-0-{number}" if self.orchestrator == "slurm" else f"hyperpod-i-{number:017x}"
        group = "workers" if number < self.count * 3 // 4 else "more"
        kind = CATALOGUE[TYPES[self.variant][group]]
        return Node(name, group, f"10.1.0.{number}", kind, allocated=number < self.count - 2)

    def add(self, metric: str, values: str, node: Node | None = None, /, **labels: str) -> None:
        """A series of a node, or of the cluster, with the labels that its exporter gives it there."""
        place = self._on_eks(metric, node) if self.orchestrator == "eks" else self._on_slurm(node)
        self.series[metric, frozenset({**labels, **place}.items())] = values

    def set(self, metric: str, values: str, node: Node | None = None, /, **labels: str) -> None:
        """Change series that are there: those of the node with these labels."""
        wanted = {**labels, **(self._place(metric, node) if node else {})}.items()
        found = [key for key in self.series if key[0] == metric and wanted <= key[1]]
        assert found, f"{metric} {dict(wanted)} is not in the fleet"
        for key in found:
            self.series[key] = values

    def lose(self, node: Node, begin: int = BEGIN, end: int = END) -> None:
        """Silence all series of a node for a while."""
        for key, values in self.series.items():
            if any(value in (node.name, f"{node.address}:9100") for _, value in key[1]):
                assert " " not in values, f"{key} is changed already"
                start = values.partition("x")[0]
                first, _, step = start.partition("+")
                ramp, later = f"+{step}" if step else "", float(first) + float(step or 0) * end
                self.series[key] = f"{start}x{begin - 1} _x{end - begin} {later}{ramp}x{self.time.minutes - end}"

    def _place(self, metric: str, node: Node) -> dict[str, str]:
        return self._on_eks(metric, node) if self.orchestrator == "eks" else self._on_slurm(node)

    @staticmethod
    def _on_slurm(node: Node | None) -> dict[str, str]:
        return node.labels if node else {"cluster": CLUSTER}

    @staticmethod
    def _on_eks(metric: str, node: Node | None) -> dict[str, str]:
        labels = next((labels for pattern, labels in addon() if pattern.fullmatch(metric)), frozenset())
        found = {"cluster_name": CLUSTER}
        if node is None:
            return found
        if "Hostname" in labels:
            return {**found, "Hostname": node.name}
        if metric.startswith("node_"):
            efa = metric.startswith("node_amazonefa")
            return {**found, "instance": node.name if efa else f"{node.address}:9100"}
        if "instance_id" in published().get(metric, ()):
            return {**found, "instance_id": node.name.removeprefix("hyperpod-")}
        if metric.startswith("hyperpod_training"):
            return {**found, "pod": f"pod-{node.address}"}
        return {**found, "node": node.name} if metric.startswith("kube") else found


def _host(fleet: Fleet, node: Node) -> None:
    time = fleet.time
    # A node's own disk; an image, which is always full; and the file system that all share.
    for mountpoint, device, fstype, free, read_only in (
        ("/", "/dev/nvme0n1p1", "ext4", 60, 0),
        ("/snap/core", "/dev/loop0", "squashfs", 0, 1),
        ("/fsx", "10.1.9.9@tcp:/abcdefgh", "lustre", 60, 0),
    ):
        labels = {"mountpoint": mountpoint, "device": device, "fstype": fstype}
        for metric, value in (
            ("size_bytes", 100), ("avail_bytes", free), ("files", 1000), ("files_free", 10 * free),
            ("readonly", read_only), ("device_error", 0),
        ):  # fmt: skip
            fleet.add(f"node_filesystem_{metric}", time.constant(value), node, **labels)
    fleet.add("node_vmstat_oom_kill", time.constant(0), node)


def _efa(fleet: Fleet, node: Node) -> None:
    time = fleet.time
    counters = [name for name in published() if name.startswith("node_amazonefa_") and _an_error(name)]
    for number in range(node.type.efa_interfaces):
        fleet.add("node_amazonefa_info", time.constant(1), node, device=f"rdmap{number}s0")
    for number in range(_COUNTING):
        labels = {"device": f"rdmap{number}s0", "port": "1"}
        for name in counters:
            fleet.add(name, time.constant(0), node, **labels)
        fleet.add("node_amazonefa_tx_pkts", time.growing(600_000), node, **labels)
        fleet.add("node_amazonefa_retrans_pkts", time.growing(6), node, **labels)


def _an_error(name: str) -> bool:
    return name.endswith(("_err", "_events", "_drops"))


def _slurm(fleet: Fleet, node: Node) -> None:
    time = fleet.time
    fleet.add("up", time.constant(1), node, job="node", instance="127.0.0.1:9100")
    fleet.add("hyperpod_node_info", time.constant(1), node, instance_id="i-1", instance_type=node.type.name)
    for exporter in ("node", "accelerator"):
        fleet.add("hyperpod_exporter_up", time.constant(1), node, exporter=exporter)
    for check in ("efa", "lustre"):
        fleet.add("hyperpod_health_check_ok", time.constant(1), node, check=check)
    fleet.add("hyperpod_health_last_run_time_seconds", time.growing(60), node)
    fleet.add("hyperpod_accelerators_expected", time.constant(node.type.accelerators), node)
    fleet.add("hyperpod_efa_interfaces_expected", time.constant(node.type.efa_interfaces), node)
    for name in ("hyperpod_lustre_efa_interfaces", "hyperpod_lustre_efa_interfaces_expected"):
        fleet.add(name, time.constant(8), node)
    fleet.add("slurm_node_gpus", time.constant(node.type.accelerators), node)
    fleet.add("slurm_node_gpus_alloc", time.constant(node.type.accelerators if node.allocated else 0), node)
    for what in ("read", "write"):
        fleet.add(f"lustre_{what}_bytes_total", time.growing(60_000), node, component="client", target="abcdefgh")
    if node.allocated:
        _training(fleet, node, hpc_job=f"{1 + fleet.nodes.index(node) // 4}")


def _training(fleet: Fleet, node: Node, **labels: str) -> None:
    time = fleet.time
    for metric, values in (
        ("updated_time_seconds", time.growing(60)),
        ("checkpoint_time_seconds", time.growing(60)),
        ("step_seconds", time.constant(3)),
        ("compute_seconds", time.constant(2)),
    ):
        fleet.add(f"hyperpod_training_{metric}", values, node, rank=str(fleet.nodes.index(node)), **labels)


def _gpus(fleet: Fleet, node: Node) -> None:
    time, busy = fleet.time, 90 if node.allocated else 0
    model = f"NVIDIA {node.type.accelerator_model}-SXM"
    for gpu in range(node.type.accelerators):
        labels = {"gpu": str(gpu), "modelName": model, "device": f"nvidia{gpu}", "UUID": f"GPU-{node.name}-{gpu}"}
        if node.allocated and fleet.orchestrator == "slurm":
            labels["hpc_job"] = f"{1 + fleet.nodes.index(node) // 4}"
        elif node.allocated:
            labels |= {"namespace": "team", "pod": f"pod-{node.address}"}
        for metric, values in (
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", time.constant(busy / 100)),
            ("DCGM_FI_DEV_GPU_UTIL", time.constant(busy)),
            # What a training's allocator holds.
            ("DCGM_FI_DEV_FB_USED", time.constant(79_000)),
            ("DCGM_FI_DEV_FB_FREE", time.constant(1_000)),
            ("DCGM_FI_DEV_GPU_TEMP", time.constant(65)),
            ("DCGM_FI_DEV_MEMORY_TEMP", time.constant(75)),
            ("DCGM_FI_DEV_THERMAL_VIOLATION", time.constant(0)),
            # All are at their power limit for a third of the time.
            ("DCGM_FI_DEV_POWER_VIOLATION", time.growing(20e9)),
            ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", time.constant(0)),
            ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", time.constant(3)),
            ("DCGM_FI_DEV_ROW_REMAP_FAILURE", time.constant(0)),
            ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", time.constant(0)),
            ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", time.constant(2)),
            ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", time.growing(60)),
        ):
            fleet.add(metric, values, node, **labels)
        # Its code is a label too, so each code is a series of its own (the exporter 4.0.0, gpu_collector.go).
        fleet.add("DCGM_FI_DEV_XID_ERRORS", time.constant(0), node, err_code="0", err_msg="No Error", **labels)
        if fleet.orchestrator == "slurm":
            fleet.add("DCGM_EXP_XID_ERRORS_COUNT", time.constant(0), node, window_size_in_ms="300000", **labels)


def _neuron(fleet: Fleet, node: Node) -> None:
    time = fleet.time
    for device in range(node.type.accelerators):
        for event in ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_uncorrected"):
            fleet.add(
                "hardware_ecc_events_total", time.constant(0), node, event_type=event, neuron_device_index=str(device)
            )
        # A node without a runtime has none of these.
        if node.allocated:
            labels = {"runtime_tag": f"{100 + device}"}
            fleet.add("neuroncore_utilization_ratio", time.constant(0.9), node, neuroncore=str(device), **labels)
            for error in ("generic", "numerical", "hardware"):
                fleet.add("execution_errors_total", time.constant(0), node, error_type=error, **labels)


def _kubernetes(fleet: Fleet, node: Node) -> None:
    time = fleet.time
    resource = "nvidia_com_gpu" if fleet.variant == "eks-gpu" else "aws_amazon_com_neuron"
    fleet.add(
        "kubelet_node_name",
        time.constant(1),
        node,
        sagemaker_amazonaws_com_instance_group_name=node.group,
        node_kubernetes_io_instance_type=node.type.name,
    )
    fleet.add("kube_node_info", time.constant(1), node, internal_ip=node.address)
    fleet.add("kube_node_status_condition", time.constant(1), node, condition="Ready", status="true")
    fleet.add("kube_node_status_capacity", time.constant(node.type.accelerators), node, resource=resource)
    if node.allocated:
        pod = {"namespace": "team", "pod": f"pod-{node.address}"}
        fleet.add("kube_pod_info", time.constant(1), node, **pod)
        fleet.add("kube_pod_status_phase", time.constant(1), phase="Running", **pod)
        fleet.add("kube_pod_status_phase", time.constant(0), phase="Pending", **pod)
        fleet.add(
            "kube_pod_container_resource_requests",
            time.constant(node.type.accelerators),
            node,
            resource=resource,
            **pod,
        )
        _training(fleet, node, hpc_job=f"{1 + fleet.nodes.index(node) // 4}", **pod)


def _slurm_controller(fleet: Fleet) -> None:
    fleet.add("slurm_nodes", fleet.time.constant(len(fleet.nodes)))
    for state in ("down", "drain", "fail"):
        fleet.add(f"slurm_nodes_{state}", fleet.time.constant(0))
    fleet.add("hyperpod_queue_oldest_wait_seconds", fleet.time.constant(600), partition="gpu")


def _control_plane(fleet: Fleet) -> None:
    daemon = {"namespace": "kube-system", "daemonset": "efa-device-plugin"}
    for metric in ("desired_number_scheduled", "number_ready"):
        fleet.add(f"kube_daemonset_status_{metric}", fleet.time.constant(len(fleet.nodes)), **daemon)


_Builder = Callable[[Fleet, Node], None]
_BUILDERS: Mapping[str, tuple[_Builder, ...]] = {
    "slurm-gpu": (_slurm, _gpus),
    "slurm-trainium": (_slurm, _neuron),
    "eks-gpu": (_kubernetes, _gpus),
    "eks-trainium": (_kubernetes, _neuron),
}
_CENTRAL: Mapping[str, Callable[[Fleet], None]] = {"slurm": _slurm_controller, "eks": _control_plane}

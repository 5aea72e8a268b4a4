"""What goes wrong in the fleet, and which alert says so, where. Each on a node or a job of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.metrics.fleet import BEGIN, END, Fleet, Node

Fault = Callable[[Fleet, Node], None]
# Most rules are the same text in several variants, and are tried in one of them.
GPU, ANY_GPU = ("slurm-gpu",), ("slurm-gpu", "eks-gpu")
TRAINIUM, ANY_TRAINIUM = ("slurm-trainium",), ("slurm-trainium", "eks-trainium")
SLURM, EKS = ("slurm-gpu",), ("eks-gpu",)
EVERYWHERE = ("slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")


@dataclass(frozen=True)
class Case:
    """A fault on a node. The alert fires with the node's labels and ``where``, or, if ``of_node`` is false, with the
    cluster's and ``where`` alone; with no ``alert``, nothing may fire."""

    alert: str
    fault: Fault
    where: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = EVERYWHERE
    of_node: bool = True

    def labels(self, node: Node) -> dict[str, str]:
        """The labels that the alert has, among others."""
        place = node.labels if self.of_node else {"cluster": node.labels["cluster"]}
        return {**place, **self.where}


def gauge(metric: str, usual: float, fault: float | None, /, **labels: str) -> Fault:
    """A gauge of the node that is wrong for a while."""
    return lambda fleet, node: fleet.set(metric, fleet.time.during(usual, fault), node, **labels)


def jump(metric: str, by: float, **labels: str) -> Fault:
    """A counter of the node that jumps, within a minute."""
    return lambda fleet, node: fleet.set(metric, fleet.time.jump(by), node, **labels)


def faster(metric: str, step: float, fault: float, **labels: str) -> Fault:
    """A counter of the node that grows faster for a while."""
    return lambda fleet, node: fleet.set(metric, fleet.time.faster(step, fault), node, **labels)


def central(metric: str, usual: float, fault: float | None, **labels: str) -> Fault:
    """A gauge of the cluster that is wrong for a while."""
    return lambda fleet, _: fleet.set(metric, fleet.time.during(usual, fault), **labels)


def xid(code: int) -> Fault:
    """An XID on GPU 5, counted for 5 minutes where the exporter counts them; else it is the last code from then on."""

    def fault(fleet: Fleet, node: Node) -> None:
        fleet.set("DCGM_FI_DEV_XID_ERRORS", fleet.time.ended(0), node, gpu="5")
        last = {"gpu": "5", "err_code": str(code), "err_msg": "words"}
        fleet.add("DCGM_FI_DEV_XID_ERRORS", fleet.time.born(code), node, **last)
        if fleet.orchestrator == "slurm":
            labels = {"gpu": "5", "xid": str(code), "window_size_in_ms": "300000"}
            fleet.add("DCGM_EXP_XID_ERRORS_COUNT", fleet.time.short_lived(1), node, **labels)

    return fault


def idle_gpus(*gpus: str) -> Fault:
    """GPUs that do nothing, in a job."""

    def fault(fleet: Fleet, node: Node) -> None:
        for gpu in gpus:
            fleet.set("DCGM_FI_PROF_GR_ENGINE_ACTIVE", fleet.time.during(0.9, 0.01), node, gpu=gpu)

    return fault


def no_efa(fleet: Fleet, node: Node) -> None:
    """All EFA interfaces are gone."""
    for number in range(node.type.efa_interfaces):
        fleet.set("node_amazonefa_info", fleet.time.during(1, None), node, device=f"rdmap{number}s0")


def born_with_efa_errors(fleet: Fleet, node: Node) -> None:
    """A counter that nobody saw before, and that is not 0."""
    metric = "node_amazonefa_impaired_remote_conn_events"
    fleet.set(metric, fleet.time.born(4), node, device="rdmap0s0")


def old_efa_errors_after_a_silence(fleet: Fleet, node: Node) -> None:
    """Errors of long ago, an exporter that is silent for 50 minutes, and the same errors."""
    fleet.set("node_amazonefa_rx_drops", fleet.time.during(0, None), node)


def stuck(fleet: Fleet, node: Node) -> None:
    """The node's job makes no step for 50 minutes, on any of its nodes."""
    values = f"0+60x{BEGIN - 1} {60 * BEGIN}x{END - BEGIN - 1} {60 * END}+60x{fleet.time.minutes - END}"
    first = fleet.nodes.index(node) // 4 * 4
    for one in fleet.nodes[first : first + 4]:
        fleet.set("hyperpod_training_updated_time_seconds", values, one, rank=str(fleet.nodes.index(one)))


def lustre_gone(fleet: Fleet, node: Node) -> None:
    """A mount that does not answer: its size is not told."""
    for metric in ("size_bytes", "avail_bytes", "files", "files_free", "readonly"):
        usual = {"size_bytes": 100, "avail_bytes": 60, "files": 1000, "files_free": 600}.get(metric, 0)
        fleet.set(f"node_filesystem_{metric}", fleet.time.during(usual, None), node, fstype="lustre")


def shared_full(fleet: Fleet, node: Node) -> None:
    """The shared file system fills, as every node sees."""
    for one in fleet.nodes:
        if one is not node:
            fleet.set("node_filesystem_avail_bytes", fleet.time.during(60, 4), one, fstype="lustre")


def shared_busy(fleet: Fleet, _: Node) -> None:
    """All nodes read as fast as the file system gives, in bytes a minute."""
    for one in fleet.nodes:
        fleet.set("lustre_read_bytes_total", fleet.time.faster(60_000, 40e9), one)


def no_runtime(fleet: Fleet, node: Node) -> None:
    """The job's runtimes are gone, and so are their series; the node stays allocated."""
    for metric, usual in (("neuroncore_utilization_ratio", 0.9), ("execution_errors_total", 0)):
        fleet.set(metric, fleet.time.during(usual, None), node)


def born_with_errors(kind: str) -> Fault:
    """A runtime that has errors when it is first seen, and ends soon."""
    return lambda fleet, node: fleet.add(
        "execution_errors_total", fleet.time.short_lived(3), node, error_type=kind, runtime_tag="999"
    )


def pending(fleet: Fleet, _: Node) -> None:
    """A pod that finds no place."""
    pod = {"namespace": "research", "pod": "waits", "phase": "Pending"}
    fleet.add("kube_pod_status_phase", fleet.time.during(0, 1), **pod)


def not_ready(fleet: Fleet, _: Node) -> None:
    """Two pods of a DaemonSet do not run."""
    count = len(fleet.nodes)
    fleet.set("kube_daemonset_status_number_ready", fleet.time.during(count, count - 2))


_EXPORTER, _QUEUE = {"exporter": "accelerator"}, {"partition": "gpu"}
_DISK = {"mountpoint": "/", "fstype": "ext4"}
_MORE: Mapping[str, str] = {"gpu": "2"}
CASES: tuple[Case, ...] = (
    Case("NodeLost", lambda fleet, node: fleet.lose(node)),
    Case("ExporterDown", gauge("hyperpod_exporter_up", 1, 0, **_EXPORTER), _EXPORTER, SLURM),
    Case("HealthCheckFailing", gauge("hyperpod_health_check_ok", 1, 0, check="efa"), {"check": "efa"}, SLURM),
    Case("HealthChecksStale", gauge("hyperpod_health_last_run_time_seconds", 1e9, 60), {}, SLURM),
    Case("DiskAlmostFull", gauge("node_filesystem_avail_bytes", 60, 5, **_DISK), {"mountpoint": "/"}),
    Case("DiskAlmostFull", gauge("node_filesystem_files_free", 600, 20, **_DISK), {"mountpoint": "/"}, SLURM),
    Case("OutOfMemory", jump("node_vmstat_oom_kill", 1), {}, SLURM),
    Case("EfaErrors", jump("node_amazonefa_rx_drops", 3, device="rdmap1s0")),
    Case("EfaErrors", born_with_efa_errors),
    Case("", old_efa_errors_after_a_silence, {}, SLURM),
    Case("EfaRetransmits", faster("node_amazonefa_retrans_pkts", 6, 60_000, device="rdmap0s0")),
    Case("EfaInterfacesMissing", gauge("node_amazonefa_info", 1, None, device="rdmap0s0"), {}, SLURM),
    Case("EfaInterfacesMissing", no_efa),
    Case("SharedStorageAlmostFull", shared_full, {"device": "10.1.9.9@tcp:/abcdefgh"}, of_node=False),
    Case("SharedStorageBusy", shared_busy, {}, SLURM, of_node=False),
    Case("LustreOverTcp", gauge("hyperpod_lustre_efa_interfaces", 8, 0), {}, SLURM),
    Case("LustreMountLost", lustre_gone, {}, SLURM),
    Case("TrainingSlowRank", gauge("hyperpod_training_compute_seconds", 2, 3)),
    Case("GpuIdleWhileAllocated", idle_gpus(*"01234567"), {}, GPU),
    Case("GpuDeadInJob", idle_gpus("3"), {"gpu": "3"}, ANY_GPU),
    Case("GpuMissing", gauge("DCGM_FI_DEV_GPU_TEMP", 65, None, gpu="2"), {}, ANY_GPU),
    # An H100's limit is higher than an A100's.
    Case("", gauge("DCGM_FI_DEV_GPU_TEMP", 65, 86, gpu="2"), {}, GPU),
    Case("GpuHot", gauge("DCGM_FI_DEV_GPU_TEMP", 65, 88, gpu="2"), _MORE, ANY_GPU),
    Case("GpuMemoryHot", gauge("DCGM_FI_DEV_MEMORY_TEMP", 75, 96, gpu="2"), _MORE, GPU),
    Case("GpuThrottledByHeat", faster("DCGM_FI_DEV_THERMAL_VIOLATION", 0, 12e9, gpu="2"), _MORE, GPU),
    Case("GpuThrottledByPower", faster("DCGM_FI_DEV_POWER_VIOLATION", 20e9, 50e9, gpu="2"), _MORE, GPU),
    Case("GpuMemoryErrors", gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 1, gpu="2"), _MORE, GPU),
    Case("GpuMemoryErrorsCorrected", jump("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 500, gpu="2"), _MORE, GPU),
    Case("GpuRowRemapFailed", gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1, gpu="2"), _MORE, GPU),
    Case("GpuNvlinkErrors", jump("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1, gpu="2"), _MORE, GPU),
    Case("GpuNvlinkErrors", jump("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 9, gpu="2"), _MORE, GPU),
    Case("GpuNvlinkErrors", faster("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 60, 9000, gpu="2"), _MORE, GPU),
    Case("", xid(63), {}, GPU),
    Case("GpuXidRestartJob", xid(94), {"gpu": "5", "xid": "94"}, GPU),
    Case("GpuXidReset", xid(95), {"gpu": "5", "xid": "95"}, GPU),
    Case("GpuXidReboot", xid(79), {"gpu": "5", "xid": "79"}, ANY_GPU),
    Case("GpuXidWorkflow", xid(74), {"gpu": "5", "xid": "74"}, GPU),
    Case("GpuXidOther", xid(999), {"gpu": "5", "xid": "999"}, GPU),
    Case("NeuronIdleWhileAllocated", no_runtime, {}, ANY_TRAINIUM),
    Case("NeuronIdleWhileAllocated", gauge("neuroncore_utilization_ratio", 0.9, 0.01), {}, TRAINIUM),
    Case(
        "NeuronDevicesMissing",
        gauge("hardware_ecc_events_total", 0, None, neuron_device_index="3"), {}, TRAINIUM,
    ),
    Case("NeuronHardwareErrors", jump("execution_errors_total", 1, error_type="hardware"), {}, TRAINIUM),
    Case("NeuronHardwareErrors", born_with_errors("hardware"), {}, TRAINIUM),
    Case("NeuronRuntimeErrors", born_with_errors("generic"), {"error_type": "generic"}, ANY_TRAINIUM),
    Case("", born_with_errors("numerical"), {}, TRAINIUM),
    Case(
        "NeuronMemoryErrors",
        gauge("hardware_ecc_events_total", 0, 1, event_type="sram_ecc_uncorrected", neuron_device_index="3"),
        {"neuron_device_index": "3"},
        TRAINIUM,
    ),
    Case("SlurmControllerSilent", central("slurm_nodes", 64, None), {}, SLURM, of_node=False),
    Case("SlurmNodesOut", central("slurm_nodes_drain", 0, 2), {}, SLURM, of_node=False),
    Case("QueueWaitLong", central("hyperpod_queue_oldest_wait_seconds", 600, 20_000), _QUEUE, SLURM, of_node=False),
    Case("KubernetesNodeNotReady", gauge("kube_node_status_condition", 1, 0), {}, EKS),
    Case("PodsPending", pending, {"namespace": "research"}, EKS, of_node=False),
    Case("DaemonSetIncomplete", not_ready, {"daemonset": "efa-device-plugin"}, EKS, of_node=False),
)  # fmt: skip
# What takes longer than the others, on a fleet of its own.
SLOW = "TrainingStuck", "TrainingCheckpointTooOld", "NodesIdle", "MetricsMissing"


def of(variant: str) -> tuple[Case, ...]:
    """The cases of a variant."""
    return tuple(case for case in CASES if variant in case.variants)

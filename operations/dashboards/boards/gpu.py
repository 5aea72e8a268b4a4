"""GPUs: what they do, and whether they are well. Names, units and meaning: facts of NVIDIA's DCGM exporter."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import (
    ANY_IS_BAD,
    GPU,
    NODE,
    RATE,
    Look,
    Query,
    bars,
    board,
    figure,
    graph,
    number,
    rows,
    states,
    warn,
    words,
)
from ..shipped import BY_NAME

_EACH = "{{node}} / GPU {{gpu}}"
_SHARE = Look(unit="percentunit", top=1)
# What an hour brought: rare events need a window longer than any zoom.
_HOUR = "1h"
# Slurm's number of a job, or Kubernetes' pod.
_JOB, _NAMED = "hpc_job, namespace, pod", "{{hpc_job}} {{namespace}} {{pod}}"
_ABOUT_USE = """
*Busy* is the share of time in which any kernel runs; *streaming multiprocessors* and *tensor cores* say how much of
the GPU it uses. A job that waits for data or for other ranks is seldom busy; one with small kernels is busy, with
idle cores. On EKS, streaming multiprocessors need `hyperpod:observability.detail: advanced`, and GPUs are not known
by job.
"""
_ABOUT_HEALTH = """
An **XID** is the driver's number for what went wrong: docs/alerts.md says which restart a job, which a node, and
which mean nothing. **Corrected** (single-bit) errors are normal in small numbers; an **uncorrected** one ends the
process. A row that is remapped is repaired at the next reset; a *failure* to remap ends the GPU's service life. On
EKS, ECC and NVLink need `hyperpod:observability.detail: advanced`; AWS's add-on gives no count of XIDs, only the last
one, and none of DCGM's own checks. A10G, L4, L40S and RTX PRO have no NVLink: its panels are empty there.
"""


def _of(metric: str, more: str = "") -> str:
    return f"{metric}{{{GPU}{more}}}"


def _held(metric: str) -> str:
    """The GPUs that somebody holds."""
    return f"""{_of(metric, ', hpc_job!=""')} or {_of(metric, ', pod!=""')}"""


def _each(metric: str) -> Query:
    return Query(f"max by (node, gpu) ({_of(metric)})", _EACH)


def _increase(metric: str) -> str:
    return f"sum by (node, gpu) (increase({_of(metric)}[{_HOUR}]))"


def gpu() -> Dashboard:
    """By node, then by job, then each GPU."""
    active = _of("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    return board(
        BY_NAME["gpu"],
        (
            (
                "By node",
                (
                    graph("Busy, mean of each node", Query(f"avg by (node) ({active})"), look=_SHARE),
                    graph(
                        "Busy, least busy GPU of each node",
                        Query(f"min by (node) ({active})"),
                        look=Look(
                            unit="percentunit", top=1, note="One idle GPU among busy ones holds up the whole job."
                        ),
                    ),
                    graph("Power", Query(f"sum by (node) ({_of('DCGM_FI_DEV_POWER_USAGE')})"), look=Look(unit="watt")),
                    graph(
                        "Hottest GPU",
                        Query(f"max by (node) ({_of('DCGM_FI_DEV_GPU_TEMP')})"),
                        look=Look(unit="celsius", steps=warn(80, 87)),
                    ),
                ),
            ),
            (
                "By job, or pod",
                (
                    graph(
                        "Busy, mean of each",
                        Query(f"avg by ({_JOB}) ({_held('DCGM_FI_PROF_GR_ENGINE_ACTIVE')})", _NAMED),
                        look=Look(unit="percentunit", top=1, empty="No job holds a GPU."),
                    ),
                    graph(
                        "GPUs of each",
                        Query(f"count by ({_JOB}) ({_held('DCGM_FI_DEV_GPU_UTIL')})", _NAMED),
                        look=Look(empty="No job holds a GPU."),
                        stacked=True,
                    ),
                ),
            ),
            (
                "Each GPU",
                (
                    graph("Busy", _each("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), look=_SHARE),
                    graph("Streaming multiprocessors in use", _each("DCGM_FI_PROF_SM_ACTIVE"), look=_SHARE),
                    graph("Tensor cores in use", _each("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), look=_SHARE),
                    graph("Memory bandwidth in use", _each("DCGM_FI_PROF_DRAM_ACTIVE"), look=_SHARE),
                    graph(
                        "Memory used",
                        _each("DCGM_FI_DEV_FB_USED"),
                        look=Look(
                            unit="mbytes", note="Frameworks keep what they once had: full is healthy in training."
                        ),
                    ),
                    graph("Power", _each("DCGM_FI_DEV_POWER_USAGE"), look=Look(unit="watt")),
                    graph("Temperature", _each("DCGM_FI_DEV_GPU_TEMP"), look=Look(unit="celsius", steps=warn(80, 87))),
                    graph(
                        "Temperature of the memory",
                        _each("DCGM_FI_DEV_MEMORY_TEMP"),
                        look=Look(unit="celsius", steps=warn(90, 95)),
                    ),
                    graph(
                        "Clock",
                        Query(f"max by (node, gpu) ({_of('DCGM_FI_DEV_SM_CLOCK')}) * 1e6", _EACH),
                        look=Look(unit="hertz"),
                    ),
                    bars(
                        "Memory used, ten fullest",
                        Query(
                            f"topk(10, {_of('DCGM_FI_DEV_FB_USED')} / "
                            f"({_of('DCGM_FI_DEV_FB_USED')} + {_of('DCGM_FI_DEV_FB_FREE')}))",
                            _EACH,
                        ),
                        look=_SHARE,
                    ),
                    words(_ABOUT_USE),
                ),
            ),
        ),
        gpu=True,
    )


def gpu_health() -> Dashboard:
    """What broke, in the order in which a node is judged."""
    xids = f"sum by (node, gpu, xid) ({_of('DCGM_EXP_XID_ERRORS_COUNT')})"
    return board(
        BY_NAME["gpu-health"],
        (
            (
                "Now",
                (
                    number(
                        "GPUs with an XID in the exporter's window",
                        f"count({_of('DCGM_EXP_XID_ERRORS_COUNT')} > 0) or vector(0)",
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Uncorrected ECC errors in 24 hours",
                        f"sum(increase({_of('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')}[24h]))",
                        look=figure(6, steps=ANY_IS_BAD, decimals=0),
                    ),
                    number(
                        "GPUs that failed to remap a row",
                        f"sum({_of('DCGM_FI_DEV_ROW_REMAP_FAILURE')})",
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Nodes with fewer GPUs than they should have",
                        _missing_gpus(),
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    rows(
                        "XIDs in the exporter's window",
                        f"{xids} > 0",
                        "times",
                        look=Look(empty="none"),
                    ),
                    rows(
                        "Last XID of each GPU",
                        f"max by (node, gpu, modelName) ({_of('DCGM_FI_DEV_XID_ERRORS')}) > 0",
                        "XID",
                        look=Look(unit="none", empty="none"),
                    ),
                    graph("XIDs", Query(xids, _EACH + ", XID {{xid}}"), look=Look()),
                    states(
                        "DCGM's own checks",
                        Query(f"clamp_max(max by (node, gpu) ({_of('DCGM_EXP_GPU_HEALTH_STATUS')}), 1)", _EACH),
                        {"0": ("good", "green"), "1": ("look at it", "red")},
                        look=Look(),
                    ),
                ),
            ),
            (
                "Memory",
                (
                    graph(
                        "Corrected ECC errors an hour",
                        Query(_increase("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), _EACH),
                        look=Look(steps=warn(10, 100)),
                    ),
                    graph(
                        "Uncorrected ECC errors an hour",
                        Query(_increase("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"), _EACH),
                        look=Look(steps=ANY_IS_BAD),
                    ),
                    graph(
                        "Remapped rows",
                        Query(_each("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS").expr, f"{_EACH}, corrected"),
                        Query(_each("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS").expr, f"{_EACH}, uncorrected"),
                        look=Look(steps=warn(1, 8)),
                    ),
                    graph("Failed to remap", _each("DCGM_FI_DEV_ROW_REMAP_FAILURE"), look=Look(steps=ANY_IS_BAD)),
                ),
            ),
            (
                "Links",
                (
                    graph(
                        "NVLink errors an hour",
                        Query(_increase("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"), f"{_EACH}, CRC of a flit"),
                        Query(_increase("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"), f"{_EACH}, CRC of data"),
                        Query(_increase("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"), f"{_EACH}, replay"),
                        Query(_increase("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"), f"{_EACH}, recovery"),
                        look=Look(steps=warn(1, 100)),
                    ),
                    graph(
                        "PCIe replays an hour",
                        Query(_increase("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"), _EACH),
                        look=Look(steps=warn(10, 100)),
                    ),
                ),
            ),
            (
                "Slowed down",
                (
                    graph("By power", _violation("DCGM_FI_DEV_POWER_VIOLATION"), look=_SHARE),
                    graph(
                        "By heat",
                        _violation("DCGM_FI_DEV_THERMAL_VIOLATION"),
                        look=Look(unit="percentunit", top=1, steps=warn(0.01, 0.1)),
                    ),
                    words(_ABOUT_HEALTH, height=5),
                ),
            ),
        ),
        gpu=True,
    )


def _violation(metric: str) -> Query:
    """The share of time in which a GPU was held back; the counter has nanoseconds."""
    return Query(f"max by (node, gpu) (rate({_of(metric)}[{RATE}])) / 1e9", _EACH)


def _missing_gpus() -> str:
    there = f"count by (node) (count by (node, gpu) ({_of('DCGM_FI_DEV_GPU_TEMP')}))"
    expected = f"max by (node) (hyperpod_accelerators_expected{{{NODE}}})"
    return f"count({there} < on (node) {expected}) or vector(0)"

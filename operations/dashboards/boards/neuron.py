"""Neuron: what neuron-monitor-prometheus of the Neuron tools gives."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import ANY_IS_BAD, NODE, RATE, Look, Query, board, figure, graph, number, warn, words
from ..shipped import BY_NAME

_SHARE = Look(unit="percentunit", top=1)
_USE = f"neuroncore_utilization_ratio{{{NODE}}}"
_MEMORY = ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
_ABOUT = """
neuron-monitor reports a NeuronCore **only while a runtime is loaded**: an unused node shows nothing here, and is
counted as idle by what Slurm or Kubernetes allocates (page *cost*). There is no figure for power, temperature or the
links between devices. *Numerical* errors are the model's (not a number), *hardware* errors are the device's. Memory
is what runtimes have taken, by use; neuron-monitor gives no total to divide it by.
"""


def _rate(counter: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({counter}{{{NODE}{more}}}[{RATE}]))"


def neuron() -> Dashboard:
    """Use, memory, executions and errors."""
    return board(
        BY_NAME["neuron"],
        (
            (
                "Use",
                (
                    number("NeuronCores with a runtime", f"count({_USE})", look=figure(6)),
                    number("Busy", f"avg({_USE})", look=figure(6, unit="percentunit", top=1)),
                    number(
                        "Errors of the hardware in 24 hours",
                        f'sum(increase(execution_errors_total{{{NODE}, error_type="hardware"}}[24h]))',
                        look=figure(6, steps=ANY_IS_BAD, decimals=0),
                    ),
                    number(
                        "Uncorrected ECC errors in 24 hours",
                        f'sum(increase(hardware_ecc_events_total{{{NODE}, event_type=~".*_uncorrected"}}[24h]))',
                        look=figure(6, steps=ANY_IS_BAD, decimals=0),
                    ),
                    graph("Busy, mean of each node", Query(f"avg by (node) ({_USE})"), look=_SHARE),
                    graph("Busy, least busy NeuronCore of each node", Query(f"min by (node) ({_USE})"), look=_SHARE),
                    graph(
                        "Busy, each NeuronCore",
                        Query(f"max by (node, neuroncore) ({_USE})", "{{node}} / core {{neuroncore}}"),
                        look=_SHARE,
                    ),
                    graph(
                        "Processors that runtimes use",
                        Query(
                            f"sum by (node, usage_type) (neuron_runtime_vcpu_usage_ratio{{{NODE}}})",
                            "{{node}}, {{usage_type}}",
                        ),
                        look=Look(unit="percentunit"),
                    ),
                ),
            ),
            (
                "Memory",
                (
                    graph(
                        "Memory of runtimes",
                        Query(
                            f"sum by (node, memory_location) (neuron_runtime_memory_used_bytes{{{NODE}}})",
                            "{{node}}, {{memory_location}}",
                        ),
                        look=Look(unit="bytes"),
                    ),
                    graph(
                        "Device memory, by use",
                        *(
                            Query(f"sum(neuroncore_memory_usage_{use}{{{NODE}}})", use.replace("_", " "))
                            for use in _MEMORY
                        ),
                        look=Look(unit="bytes"),
                        stacked=True,
                    ),
                ),
            ),
            (
                "Executions",
                (
                    graph(
                        "Executions a second",
                        Query(_rate("execution_status_total", "node, status_type"), "{{node}}, {{status_type}}"),
                        look=Look(unit="ops"),
                    ),
                    graph(
                        "Latency",
                        Query(
                            f'max by (node, percentile) (execution_latency_seconds{{{NODE}, percentile=~"p50|p99"}})',
                            "{{node}}, {{percentile}}",
                        ),
                        look=Look(unit="s"),
                    ),
                    graph(
                        "Errors an hour, by kind",
                        Query(
                            f"sum by (node, error_type) (increase(execution_errors_total{{{NODE}}}[1h]))",
                            "{{node}}, {{error_type}}",
                        ),
                        look=Look(steps=warn(1, 10)),
                    ),
                    graph(
                        "ECC events an hour",
                        Query(
                            f"sum by (node, neuron_device_index, event_type) "
                            f"(increase(hardware_ecc_events_total{{{NODE}}}[1h]))",
                            "{{node}} / device {{neuron_device_index}}, {{event_type}}",
                        ),
                        look=Look(steps=warn(1, 100)),
                    ),
                    words(_ABOUT),
                ),
            ),
        ),
    )

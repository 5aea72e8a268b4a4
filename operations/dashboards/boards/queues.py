"""What waits, what runs, and on which nodes: Slurm, by the names of slurmctld 25.11, and Kubernetes with Kueue."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import ANY_IS_BAD, CLUSTER, NODE, RATE, Look, Query, bars, board, figure, graph, number, rows, warn, words
from ..shipped import BY_NAME

_STATES = ("alloc", "mixed", "idle", "planned", "draining", "drained", "down", "fail")
_ENDED = ("failed", "node_failed", "outofmemory", "timeout", "cancelled", "preempted")
_ABOUT_SLURM = """
The controller writes these figures under the names of Slurm 25.11, whose slurmctld serves them itself. *GPUs* are
accelerators of every kind: on Trainium, devices. Who waits, and why: `squeue --start` on the controller. Why a node is
drained: `sinfo -R`.
"""
_ABOUT_KUBERNETES = """
Figures are those of kube-state-metrics and, where `hyperpod:charts.queues` is `kueue`, of Kueue: the rows of queues
are empty without it, and with HyperPod's task governance, which has its own page in the SageMaker console. Quotas by
resource need Kueue's setting `metrics.enableClusterQueueResources`. Why a pod waits: `kubectl describe pod`.
"""


_READY = ', condition="Ready", status!="true"'


def _slurm(name: str) -> str:
    return f"slurm_{name}{{{CLUSTER}}}"


def slurm() -> Dashboard:
    """The queue, the partitions, the nodes by state, the scheduler."""
    waits = f"max by (partition) (hyperpod_queue_oldest_wait_seconds{{{CLUSTER}}})"
    return board(
        BY_NAME["slurm"],
        (
            (
                "Now",
                (
                    number("Jobs running", f"sum({_slurm('jobs_running')})", look=figure(4)),
                    number("Jobs waiting", f"sum({_slurm('jobs_pending')})", look=figure(4)),
                    number("Longest wait", f"max({waits})", look=figure(4, unit="s", steps=warn(3600, 86400))),
                    number(
                        "GPUs allocated",
                        f"sum({_slurm('node_gpus_alloc')}) / sum({_slurm('node_gpus')})",
                        look=figure(4, unit="percentunit", top=1, empty="no GPUs"),
                    ),
                    number(
                        "Nodes drained or draining",
                        f"sum({_slurm('nodes_drained')}) + sum({_slurm('nodes_draining')})",
                        look=figure(4, steps=warn(1, 3)),
                    ),
                    number(
                        "Nodes down or failed",
                        f"sum({_slurm('nodes_down')}) + sum({_slurm('nodes_fail')})",
                        look=figure(4, steps=ANY_IS_BAD),
                    ),
                    graph(
                        "Jobs",
                        Query(f"sum({_slurm('jobs_running')})", "running"),
                        Query(f"sum({_slurm('jobs_pending')})", "waiting"),
                        Query(f"sum({_slurm('jobs_hold')})", "of these held"),
                        look=Look(),
                    ),
                    graph("Longest wait, by partition", Query(waits, "{{partition}}"), look=Look(unit="s")),
                ),
            ),
            (
                "Partitions and nodes",
                (
                    graph(
                        "Jobs waiting, by partition",
                        Query(f"sum by (partition) ({_slurm('partition_jobs_pending')})", "{{partition}}"),
                        look=Look(width=8),
                        stacked=True,
                    ),
                    graph(
                        "Jobs running, by partition",
                        Query(f"sum by (partition) ({_slurm('partition_jobs_running')})", "{{partition}}"),
                        look=Look(width=8),
                        stacked=True,
                    ),
                    graph(
                        "GPUs",
                        Query(f"sum({_slurm('node_gpus')})", "there"),
                        Query(f"sum({_slurm('node_gpus_alloc')})", "allocated"),
                        look=Look(width=8, empty="no GPUs"),
                    ),
                    graph(
                        "Nodes, by state",
                        *(Query(f"sum({_slurm(f'nodes_{state}')})", state) for state in _STATES),
                        look=Look(),
                        stacked=True,
                    ),
                    bars(
                        "GPUs allocated, by node",
                        Query(f"max by (node) (slurm_node_gpus_alloc{{{NODE}}})"),
                        look=Look(empty="no GPUs"),
                    ),
                ),
            ),
            (
                "Jobs that ended badly, and the scheduler",
                (
                    graph(
                        "Jobs that Slurm still remembers, by end",
                        *(Query(f"sum({_slurm(f'jobs_{end}')})", end.replace("_", " ")) for end in _ENDED),
                        look=Look(note="slurmctld forgets a job after MinJobAge."),
                    ),
                    graph(
                        "Scheduler's cycle",
                        Query(f"max({_slurm('schedule_cycle_last')}) / 1e6", "last"),
                        Query(f"max({_slurm('sched_mean_cycle')}) / 1e6", "mean"),
                        Query(f"max({_slurm('bf_cycle_last')}) / 1e6", "backfill, last"),
                        look=Look(unit="s", steps=warn(1, 5)),
                    ),
                    words(_ABOUT_SLURM),
                ),
            ),
        ),
    )


def _kube(name: str, more: str = "") -> str:
    return f"kube_{name}{{{CLUSTER}{more}}}"


def kubernetes() -> Dashboard:
    """Pods and jobs, what they request, and Kueue's queues."""
    pending = _kube("pod_status_phase", ', phase="Pending"')
    waits = f"sum by (le, cluster_queue) (rate(kueue_admission_wait_time_seconds_bucket{{{CLUSTER}}}[{RATE}]))"
    return board(
        BY_NAME["kubernetes"],
        (
            (
                "Now",
                (
                    number("Pods waiting", f"sum({pending})", look=figure(6)),
                    number(
                        "Of these, without a node that fits",
                        f"sum({_kube('pod_status_unschedulable')}) or vector(0)",
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Nodes not ready",
                        f"sum({_kube('node_status_condition', _READY)}) or vector(0)",
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Accelerators requested",
                        f"sum(hyperpod:accelerators_allocated{{{NODE}}}) / sum(hyperpod:accelerators{{{NODE}}})",
                        look=figure(6, unit="percentunit", top=1),
                    ),
                    graph(
                        "Pods, by phase",
                        Query(f"sum by (phase) ({_kube('pod_status_phase')})", "{{phase}}"),
                        look=Look(),
                        stacked=True,
                    ),
                    graph(
                        "Pods waiting, by namespace",
                        Query(f"sum by (namespace) ({pending})", "{{namespace}}"),
                        look=Look(),
                        stacked=True,
                    ),
                    graph(
                        "Accelerators requested, by node",
                        Query(f"sum by (node) (hyperpod:accelerators_allocated{{{NODE}}})"),
                        look=Look(),
                        stacked=True,
                    ),
                    graph(
                        "Jobs",
                        Query(f"sum({_kube('job_status_active')})", "active pods"),
                        Query(f"sum({_kube('job_status_failed')})", "failed pods"),
                        Query(f"sum({_kube('job_status_succeeded')})", "succeeded pods"),
                        look=Look(),
                    ),
                ),
            ),
            (
                "Needs attention",
                (
                    rows(
                        "Pods that restarted in the last hour",
                        f"sum by (namespace, pod) (increase({_kube('pod_container_status_restarts_total')}[1h])) > 0",
                        "restarts",
                        look=Look(empty="none", decimals=0),
                    ),
                    rows(
                        "Nodes that take no pods",
                        f"max by (node) ({_kube('node_spec_unschedulable')}) > 0",
                        "cordoned",
                        look=Look(empty="none"),
                    ),
                ),
            ),
            (
                "Kueue",
                (
                    graph(
                        "Workloads waiting, by queue",
                        Query(
                            f"sum by (cluster_queue, status) (kueue_pending_workloads{{{CLUSTER}}})",
                            "{{cluster_queue}}, {{status}}",
                        ),
                        look=Look(width=8),
                        stacked=True,
                    ),
                    graph(
                        "Workloads admitted, by queue",
                        Query(
                            f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{CLUSTER}}})",
                            "{{cluster_queue}}",
                        ),
                        look=Look(width=8),
                        stacked=True,
                    ),
                    graph(
                        "Wait until admission, nine of ten",
                        Query(f"histogram_quantile(0.9, {waits})", "{{cluster_queue}}"),
                        look=Look(unit="s", width=8),
                    ),
                    graph(
                        "Quota used, by queue and resource",
                        Query(
                            "sum by (cluster_queue, resource) "
                            f"(kueue_cluster_queue_resource_usage{{{CLUSTER}}}) / sum by (cluster_queue, resource) "
                            f"(kueue_cluster_queue_nominal_quota{{{CLUSTER}}})",
                            "{{cluster_queue}}, {{resource}}",
                        ),
                        look=Look(unit="percentunit", note="Above 100 %: borrowed from other queues of the cohort."),
                    ),
                    graph(
                        "Workloads evicted an hour, by reason",
                        Query(
                            "sum by (cluster_queue, reason) "
                            f"(increase(kueue_evicted_workloads_total{{{CLUSTER}}}[1h]))",
                            "{{cluster_queue}}, {{reason}}",
                        ),
                        look=Look(),
                    ),
                    words(_ABOUT_KUBERNETES),
                ),
            ),
        ),
    )

"""Checks of groups whose nodes follow demand. Every rule yields its own problems."""

from collections.abc import Iterator

from ..schema.problems import Problem
from .keys import ClusterKeys, WorkerGroup

_KEY = "hyperpod:autoscaling"


def demand_problems(settings: ClusterKeys, *, continuous: bool, recovery: str, monitored: bool) -> Iterator[Problem]:
    """Yield every problem of Karpenter and its groups. ``continuous``: how nodes come; ``recovery``: of faulty nodes;
    ``monitored``: HyperPod's agent looks for them.

    SageMaker Developer Guide, "Autoscaling on SageMaker HyperPod EKS": Prerequisites; "Create a NodeClass".
    """
    scaling = settings.autoscaling
    enabled = scaling is not None and scaling.enabled
    groups = [(f"hyperpod:workers[{n}]", one) for n, one in enumerate(settings.groups) if one.scaling == "demand"]
    if settings.orchestrator == "slurm":
        given = {_KEY: scaling is not None, **{f"{key}.scaling": True for key, _ in groups}}
        for key in (key for key, present in given.items() if present):
            yield Problem(key=key, what="is for EKS", fix="leave it out with orchestrator slurm")
        return
    needs = {
        "continuous provisioning": (continuous, "hyperpod:nodeProvisioning Continuous"),
        "automatic recovery": (recovery == "Automatic", "hyperpod:nodeRecovery Automatic"),
        "HyperPod's health monitoring": (monitored, "hyperpod:charts.healthMonitoring true"),
        "a group to scale": (bool(groups), "scaling demand in one of hyperpod:workers"),
    }
    for what, (there, fix) in needs.items():
        if enabled and not there:
            yield Problem(key=_KEY, what=f"Karpenter needs {what}", fix=f"{fix}, or enabled false")
    for key, group in groups:
        if not enabled:
            yield Problem(key=f"{key}.scaling", what="demand needs Karpenter", fix="hyperpod:autoscaling.enabled true")
        yield from _group(key, group, settings.count_of(group))


def _group(key: str, group: WorkerGroup, count: int) -> Iterator[Problem]:
    if not count:
        yield Problem(key=f"{key}.count", what="no node at most", fix="1 or more with scaling demand")
    excluded = {
        "trainingPlanArn": (group.training_plan_arn is not None, "Karpenter does not take reserved capacity"),
        "minCount": (group.min_count is not None, "Karpenter has no minimum: it begins with no node"),
        "deepHealthChecks": (bool(group.deep_health_checks), "new nodes are checked for an hour while pods wait"),
    }
    for field, (given, what) in excluded.items():
        if given:
            yield Problem(key=f"{key}.{field}", what=what, fix="leave it out, or scaling fixed")

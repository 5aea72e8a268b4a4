"""What has to be there before a deployment begins: programs, charts, and the capacity that is paid in advance."""

import os
import shutil
from collections.abc import Collection

from components.config import InstanceGroup
from components.kubernetes.charts import FOLDER, HYPERPOD, KUEUE, UNVERIFIED, UNVERIFIED_VARIABLE, faults

from .. import target as targets
from ..failures import bad_input, cannot_know
from ..spending import plans
from ..target import Target
from ..terminal.console import note
from . import charts


def require_aws_cli() -> None:
    """pulumi-eks checks the AWS CLI's version, and the Kubernetes provider gets every token from it."""
    if shutil.which("aws") is None:
        raise cannot_know(
            "an EKS stack needs the AWS CLI on PATH: pulumi-eks and the Kubernetes provider call it",
            "install version 2: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
        )


def bring_charts() -> None:
    """Download the charts that `pulumi up` installs on EKS, unless the pinned ones are there, or none is asked for."""
    if os.environ.get(UNVERIFIED_VARIABLE) == UNVERIFIED:
        return
    for chart in (HYPERPOD, KUEUE):
        if faults(chart, targets.ROOT / FOLDER / chart.name):
            note(f"Downloading the chart {chart.name} {chart.version} ...")
            charts.bring(chart)


def require_plans(target: Target) -> None:
    """Refuse training plans that are not for these nodes, before the network and the storage for them are made.

    Where nodes have their plan already, as when it ends while they run, it is only said: other changes go on. Asks AWS
    nothing for a stack without plans.
    """
    wrong = []
    for arn, groups in plans.users(target).items():
        found = plans.check(target, arn, groups)
        if found.result == "PASS":
            continue
        words = f"{found.name}: {found.why}"
        if found.result == "FAIL" and not _have(target, arn, groups):
            wrong.append(words)
        else:
            note(f"Warning: {words}", "yellow")
    if wrong:
        raise bad_input(
            f"nothing was changed. {'; '.join(wrong)}",
            f"name a plan for these nodes, or none, in hyperpod:workers; then `hyperpod quotas {target.stack}`",
        )


def _have(target: Target, arn: str, groups: Collection[InstanceGroup]) -> bool:
    """Whether the cluster has all these groups with this plan, and as many nodes in each (DescribeCluster)."""
    deployed = {one["InstanceGroupName"]: one for one in (target.found_cluster or {}).get("InstanceGroups", [])}
    return all(
        deployed.get(group.name, {}).get("TrainingPlanArn") == arn
        and deployed[group.name]["TargetCount"] >= group.count
        for group in groups
    )

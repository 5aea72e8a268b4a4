"""The end of a deployment, once the stack is up: its dashboards, and the nodes still to come."""

from collections import Counter

from botocore.exceptions import BotoCoreError, ClientError

from ..cluster import nodes
from ..dashboards.importing import import_dashboards
from ..deployment.deploy import Report
from ..failures import Failure, described
from ..target import Target
from ..terminal import console


def import_all(chosen: Target) -> list[str]:
    """Give the stack's Grafana, if it has one, the dashboards. Returns warnings: the stack itself is up."""
    if chosen.config.settings.observability.grafana == "none":
        return []
    console.note("Importing the dashboards into Grafana ...")
    try:
        found = import_dashboards(chosen)
    except (Failure, ClientError, BotoCoreError) as error:
        said = described(error, chosen.stack).message
        return [f"no dashboards: {said}. Try again: hyperpod dashboards {chosen.stack}"]
    console.note(f"{len(found.dashboards)} dashboards are in {found.grafana}, folder HyperPod.")
    return found.warnings


def still_to_come(chosen: Target) -> list[str]:
    """Nodes still missing, as warnings (SageMaker Developer Guide, "Continuous provisioning for enhanced cluster
    operations"): those that have no instance, and those that still boot."""
    chosen.changed()
    try:
        found = nodes.list_nodes(chosen)
        missing = nodes.awaited(chosen, found)
    except (Failure, ClientError, BotoCoreError) as error:
        return [f"which nodes are there is unknown: {described(error, chosen.stack).message}"]
    booting = Counter(node.group for node in found if node.status != "Running")
    return [
        f"nodes of {group} that have no instance yet: {number}. HyperPod keeps requesting them"
        for group, number in missing.items()
    ] + [f"nodes of {group} not running yet: {number}" for group, number in booting.items()]


def name_what_comes(chosen: Target, report: Report) -> None:
    """Add these warnings to an update's report, with the command that follows the nodes."""
    if coming := still_to_come(chosen):
        report.warnings += coming
        first = f"{report.next_step}, then " if report.next_step else ""
        report.next_step = f"{first}hyperpod watch {chosen.stack}"

"""What a deployment ends with, once the stack is up: its dashboards, and which nodes are still to come."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from stack.failures import Failure, described

from .. import console
from ..cluster import nodes
from ..dashboards.importing import import_dashboards
from ..target import Target


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
    """Nodes still missing, as warnings (SageMaker Developer Guide, "Continuous provisioning for
    enhanced cluster operations")."""
    chosen.changed()
    try:
        missing = nodes.awaited(chosen, nodes.list_nodes(chosen))
    except (Failure, ClientError, BotoCoreError) as error:
        return [f"which nodes are there is unknown: {described(error, chosen.stack).message}"]
    return [
        f"nodes of {group} that have no instance yet: {number}. HyperPod goes on requesting them: hyperpod nodes "
        f"{chosen.stack} --watch shows them come, hyperpod errors {chosen.stack} what keeps them"
        for group, number in missing.items()
    ]

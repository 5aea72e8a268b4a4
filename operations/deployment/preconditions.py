"""What the account and a network of one's own must have before the first resource of a stack is made.

AWS refuses most of this late: a quota at the cluster, after the network and the file system are paid for; a security
group at EFA's health check, when nodes boot.
"""

from collections.abc import Callable, Iterator

from botocore.exceptions import BotoCoreError, ClientError

from ..failures import bad_input, reason
from ..spending import capacity, quotas
from ..target import Target
from ..terminal.console import note
from . import existing_fsx, existing_network, own_images
from .lack import Lack


def require(target: Target, *, anyway: bool = False) -> None:
    """Refuse a deployment whose new nodes, file systems or network cannot come, all reasons at once.

    Asks nothing for a cluster that has all its nodes already. What cannot be asked is said and stops nobody. With
    ``anyway``, what is missing is a warning. Raises Failure.
    """
    if _complete(target):
        return
    note("Asking the account whether it has what the stack needs ...")
    answers = [_asked(target, question) for question in _QUESTIONS]
    found = [lack for lacks, _ in answers for lack in lacks]
    unknown = sorted({f"not checked before the deployment: {why}" for _, why in answers if why})
    for warning in [*unknown, *(str(lack) for lack in found if anyway or not lack.sure)]:
        note(f"Warning: {warning}", "yellow")
    if (missing := [f"  {lack.what}\n      {lack.fix}" for lack in found if lack.sure]) and not anyway:
        raise bad_input(
            "\n".join(["nothing was changed. The account lacks what the stack needs:", *missing]),
            f"fix these, then `hyperpod deploy {target.stack}`; --anyway deploys although they are missing",
        )


def _complete(target: Target) -> bool:
    """Whether the cluster has every group with at least as many nodes as the configuration (DescribeCluster)."""
    try:
        deployed = {one["InstanceGroupName"]: one for one in (target.found_cluster or {}).get("InstanceGroups", [])}
    except (ClientError, BotoCoreError):
        return False
    wanted = target.config.instance_groups
    return all(deployed.get(group.name, {}).get("TargetCount", -1) >= group.least for group in wanted)


def _asked(target: Target, question: Callable[[Target], Iterator[Lack]]) -> tuple[list[Lack], str]:
    """What is missing, or why nobody knows."""
    try:
        return list(question(target)), ""
    except (ClientError, BotoCoreError) as error:
        return [], reason(error)


def quotas_lack(target: Target) -> Iterator[Lack]:
    """Quotas that are too small for the stack beside the account's other use."""
    for one in quotas.check(target):
        if one.result == "FAIL":
            used = f" beside {one.used:g} in use" if one.used else ""
            yield Lack(
                what=f"the quota {one.service}: {one.name} is {one.limit:g}, and the stack needs {one.needed:g}{used}",
                fix=one.request,
            )


def zone_lacks(target: Target) -> Iterator[Lack]:
    """Instance types that EC2 does not offer in the stack's zone: it may not list a type of HyperPod's alone at all.

    What of a group's types is missing stops nobody as long as it has another.
    """
    here, groups = target.config.zone_id, [one for one in target.config.instance_groups if one.count]
    asked = {name: capacity.zones_of(target.aws, name) for name in sorted({r.name for g in groups for r in g.types})}
    stuck = {r.name for g in groups if not any(here in asked[r.name][0] for r in g.types) for r in g.types}
    for name, (zones, unknown) in asked.items():
        if unknown:
            yield Lack(what=f"whether {here} offers {name} is unknown: {unknown}", fix="", sure=False)
        elif here not in zones:
            others = f"hyperpod:availabilityZoneId: one of {', '.join(zones)}" if zones else "another aws:region"
            yield Lack(what=f"{here} does not offer {name}", fix=others, sure=bool(zones) and name in stuck)


def surprises(target: Target) -> Iterator[Lack]:
    """What is paid for and may be of no use: it stops nobody."""
    settings = target.config.settings
    if settings.node_recovery == "None":
        yield Lack(
            what="a node that fails is paid for and out of service until somebody replaces it",
            fix="hyperpod:nodeRecovery: Automatic",
            sure=False,
        )
    grafana = settings.observability
    if grafana.grafana != "create" or "AWS_SSO" not in grafana.grafana_authentication:
        return
    # ListInstances answers for one region, and Identity Center may be in another.
    if not list(target.aws.pages("sso-admin", "list_instances", "Instances")):
        yield Lack(
            what=f"there is no IAM Identity Center in {target.aws.region}, through which people sign in to Grafana",
            fix="enable it in the organization's management account, or hyperpod:observability.grafanaAuthentication",
            sure=False,
        )


_QUESTIONS: tuple[Callable[[Target], Iterator[Lack]], ...] = (
    quotas_lack,
    zone_lacks,
    existing_network.lacks,
    existing_fsx.lacks,
    own_images.lacks,
    surprises,
)

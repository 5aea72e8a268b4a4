"""Checks every policy in the account: it must be well formed, and it must grant what it appears to grant.

AWS accepts a policy whose action does not exist, or whose ARN can never match, and it grants nothing. Nobody notices
until a call is denied, so the account refuses such a policy. The form is checked by the published schemas that cfn-lint
ships, the rest by the Service Authorization Reference.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

from jsonschema import Draft201909Validator, ValidationError, validators
from referencing import Registry
from referencing.jsonschema import DRAFT201909

from .authorization import Action, actions
from .books import Refused
from .schemas import published

# identity: what a role may do. trust: who may assume it. resource: who may do what with a resource. itself: the same,
# with "*" for the resource that has the policy.
Kind = Literal["identity", "trust", "resource", "itself"]

# Where each type of resource has its policies.
_POLICIES: Mapping[str, Mapping[str, Kind]] = {
    "aws:cloudwatch/logResourcePolicy:LogResourcePolicy": {"policyDocument": "resource"},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"policy": "itself"},
    "aws:iam/role:Role": {"assumeRolePolicy": "trust"},
    "aws:iam/rolePolicy:RolePolicy": {"policy": "identity"},
    "aws:kms/key:Key": {"policy": "itself"},
    "aws:s3/bucketPolicy:BucketPolicy": {"policy": "resource"},
    "aws:sns/topicPolicy:TopicPolicy": {"policy": "resource"},
}
# Actions granted on "*" although AWS takes a name, and why.
STAR_REASONS: Mapping[str, str] = {}
# Amazon EKS User Guide, "Learn how EKS Pod Identity grants pods access to AWS services": both, or no pod gets the role.
_POD_IDENTITY, _POD_ACTIONS = "pods.eks.amazonaws.com", {"sts:assumerole", "sts:tagsession"}


def check_policies(type_token: str, inputs: Mapping[str, Any], partition: str) -> None:
    """Raise Refused with everything that is wrong with a resource's policies. Unknown values are not checked."""
    places = _POLICIES.get(type_token, {})
    for key, value in inputs.items():
        if key in places and isinstance(value, str):
            _refuse(f"{key} of {type_token}", _text_faults(value, places[key], partition))
        elif isinstance(value, str) and value.lstrip().startswith("{") and '"Statement"' in value:
            raise Refused("NotRehearsed", f"{key} of {type_token} is a policy that the embedded account does not judge")


def _refuse(what: str, faults: list[str]) -> None:
    if faults:
        raise Refused("MalformedPolicyDocument", f"{what}: " + "; ".join(dict.fromkeys(faults)))


@cache  # A preview, an update and the next deployment have most of a stack's policies in common.
def _text_faults(text: str, kind: Kind, partition: str) -> list[str]:
    try:
        policy = json.loads(text)
    except ValueError as error:
        return [f"not JSON ({error})"]
    return policy_faults(policy, kind, partition)


def policy_faults(policy: Any, kind: Kind, partition: str) -> list[str]:
    """What is wrong with a policy, in sentences. ``partition`` is the account's, as ``aws-us-gov``."""
    form = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in _form(kind).iter_errors(policy)]
    if form:
        return form
    statements = listed(policy["Statement"])
    faults = [fault for statement in statements for fault in _statement_faults(statement, kind, partition)]
    if kind == "identity":
        faults += _uncovered(statements)
    return faults


def listed(value: Any) -> list[Any]:
    """A value that may stand alone, as a list."""
    return value if isinstance(value, list) else [value]


def _statement_faults(statement: Mapping[str, Any], kind: Kind, partition: str) -> Iterator[str]:
    patterns = listed(statement.get("Action", statement.get("NotAction")))
    for pattern in patterns:
        if pattern != "*" and not actions(pattern):
            yield f"{pattern} is no action of AWS"
    allows = statement["Effect"] == "Allow"
    if allows and ("NotAction" in statement or "*" in patterns):
        yield "a statement allows every action, or all but a few"
    if kind in ("resource", "trust"):
        yield from _principal_faults(statement, patterns)
    if "Action" not in statement:
        return
    resources = listed(statement.get("Resource", []))
    for resource in resources:
        if resource.startswith("arn:") and resource.split(":")[1] not in (partition, "*"):
            yield f"{resource} is of another partition than {partition}"
    for pattern in patterns:
        meant = actions(pattern)
        if meant and resources:
            yield from _resource_faults(pattern, meant, resources, kind, allows)
        if meant:
            yield from _condition_faults(pattern, meant, resources, statement.get("Condition", {}))
    yield from _idle_resources(patterns, resources)


def _resource_faults(
    pattern: str, meant: tuple[Action, ...], resources: list[str], kind: Kind, allows: bool
) -> Iterator[str]:
    if "*" in resources:
        named = [action.name for action in meant if action.types and action.name not in STAR_REASONS]
        if named and allows and kind != "itself":
            yield f'{named[0]} is granted on "*" and takes a name: {_type_names(meant)}'
        return
    if all(not action.types for action in meant):
        yield f'{pattern} has no resource type: only "*" grants it, {resources[0]} never matches'
    elif not any(action.fitting(resources) for action in meant):
        yield f"{pattern} is about {_type_names(meant)}, which none of {', '.join(resources)} is"


def _type_names(meant: tuple[Action, ...]) -> str:
    return ", ".join(sorted({kind.name for action in meant for kind in action.types}))


def _idle_resources(patterns: Iterable[str], resources: list[str]) -> Iterator[str]:
    """ARNs that match no action of their statement. Actions without resource types are reported elsewhere."""
    meant = [action for pattern in patterns for action in actions(pattern)]
    if all(action.types for action in meant) and any(action.fitting(resources) for action in meant):
        for resource in resources:
            if not any(action.fitting([resource]) for action in meant):
                yield f"{resource} is none of what {', '.join(patterns)} are about"


def _condition_faults(
    pattern: str, meant: tuple[Action, ...], resources: list[str], conditions: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    for keys in conditions.values():
        for key in keys:
            if not any(action.knows(key, action.fitting(resources)) for action in meant):
                yield f"{pattern} has no condition key {key}: it is never there when AWS decides"


def _uncovered(statements: list[Mapping[str, Any]]) -> Iterator[str]:
    """Actions granted on one resource type although AWS requires two: every call would be denied."""
    granted: dict[str, set[str]] = {}
    for statement in statements:
        if statement["Effect"] == "Allow":
            for pattern in listed(statement.get("Action", [])):
                granted.setdefault(pattern, set()).update(listed(statement.get("Resource", [])))
    for pattern, resources in granted.items():
        for action in actions(pattern) if "*" not in pattern else ():
            fitting = action.fitting(resources)
            missing = [kind.name for kind in action.types if kind.required and kind not in fitting]
            if fitting and missing:
                yield f"{action.name} also asks for {', '.join(missing)}, on which nothing grants it"


def _principal_faults(statement: Mapping[str, Any], patterns: list[str]) -> Iterator[str]:
    principal = statement.get("Principal")
    if statement["Effect"] != "Allow":
        return
    everybody = principal == "*" or (isinstance(principal, Mapping) and "*" in listed(principal.get("AWS", [])))
    if everybody and not statement.get("Condition"):
        yield "a statement allows everybody"
    services = listed(principal.get("Service", [])) if isinstance(principal, Mapping) else []
    for service in services:
        if not service.endswith((".amazonaws.com", ".aws.internal")):
            yield f"{service} is no service principal"
    if _POD_IDENTITY in services and not {pattern.lower() for pattern in patterns} >= _POD_ACTIONS:
        yield f"{_POD_IDENTITY} needs both sts:AssumeRole and sts:TagSession"


# Form -----------------------------------------------------------------------------------------------------------------


def _exactly_one(_: Any, names: list[str], value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, Mapping) and sum(name in value for name in names) != 1:
        yield ValidationError(f"exactly one of {' and '.join(names)} is needed")


def _unique(_: Any, keys: list[str], value: Any, __: Any) -> Iterator[ValidationError]:
    for key in keys:
        given = [item[key] for item in value if key in item] if isinstance(value, list) else []
        if len(given) != len(set(given)):
            yield ValidationError(f"two statements have the same {key}")


_Form: Any = validators.extend(Draft201909Validator, {"requiredXor": _exactly_one, "uniqueKeys": _unique})


@cache
def _form(kind: Kind) -> Any:
    """cfn-lint's schema for a kind of policy, which refers to the common one."""
    own = {"identity": "identity", "trust": "trust"}.get(kind, "resource")
    registry: Registry[Any] = Registry().with_resources(
        (name, DRAFT201909.create_resource(_schema(file)))
        for name, file in (("policy", "policy"), (own, f"policy_{own}"))
    )
    return _Form(_schema(f"policy_{own}"), registry=registry)


@cache
def _schema(name: str) -> Any:
    return published(f"other/iam/{name}.json")

"""What policies grant: IAM's decision about one action on the resources that AWS asks about.

IAM User Guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators". Within one account an
identity's Allow is enough, and any Deny wins, including the resource's own. Operators on numbers and dates are not
supported: a statement with one grants nothing and denies nothing. Several values of a key are separated by commas.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from .authorization import Action
from .books import Books
from .matching import matches
from .policies import listed

Statement = Mapping[str, Any]
_VARIABLE = re.compile(r"\$\{([\w:/-]+)\}")
_EQUAL = {"StringEquals": str.__eq__, "StringEqualsIgnoreCase": lambda one, other: one.lower() == other.lower()}
_LIKE = {name: lambda one, other: fnmatchcase(one, other) for name in ("StringLike", "ArnLike", "ArnEquals")}
_OPERATORS = {**_EQUAL, **_LIKE, "Bool": lambda one, other: one.lower() == other.lower()}


def role_statements(account: Books, role: str, by: float | None = None) -> Iterator[Statement]:
    """The statements of a role's policies, with ``by`` only those that are ready by that virtual time."""
    for policy in account.find("aws:iam/rolePolicy:RolePolicy", by=by, role=role):
        yield from listed(json.loads(policy.inputs["policy"])["Statement"])
    for attached in account.find("aws:iam/rolePolicyAttachment:RolePolicyAttachment", by=by, role=role):
        yield from managed_statements(account.client("iam"), attached.inputs["policyArn"], account.partition)


def managed_statements(iam: Any, arn: str, partition: str) -> Iterator[Statement]:
    """The statements of an AWS managed policy, which moto knows only in the commercial partition."""
    arn = arn.replace(f"arn:{partition}:", "arn:aws:", 1)
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    text = document if isinstance(document, str) else json.dumps(document)
    yield from listed(json.loads(text.replace("arn:aws:", f"arn:{partition}:"))["Statement"])


def asked_about(action: Action, values: Mapping[str, str]) -> list[str]:
    """The ARNs that AWS checks: one of every type that the action requires or that ``values`` name completely.

    ``values`` are the placeholders of the reference's ARNs. An unknown part stays ``*``, which only a wildcard matches.
    """
    found = []
    for kind in action.types:
        filled = kind.filled(values)
        if kind.required or "*" not in filled:
            found.append(filled)
    return found or ["*"]


def granted(
    statements: Iterable[Statement],
    denying: Iterable[Statement],
    action: str,
    resource: str,
    context: Mapping[str, str],
) -> bool:
    """Whether the statements allow the action on the resource, and neither they nor ``denying`` deny it."""
    own = list(statements)
    applying = [one for one in own if _applies(one, action, resource, context)]
    refused = any(one["Effect"] == "Deny" for one in applying) or any(
        one["Effect"] == "Deny" and _applies(one, action, resource, context) for one in denying
    )
    return bool(applying) and not refused


def _applies(statement: Statement, action: str, resource: str, context: Mapping[str, str]) -> bool:
    return (
        _is_about(statement, "Action", lambda pattern: fnmatchcase(action.lower(), pattern.lower()))
        and _is_about(statement, "Resource", lambda pattern: matches(pattern, resource))
        and all(_holds(operator, keys, context) for operator, keys in statement.get("Condition", {}).items())
    )


def _is_about(statement: Statement, what: str, fits: Any) -> bool:
    if f"Not{what}" in statement:
        return not any(fits(pattern) for pattern in listed(statement[f"Not{what}"]))
    return any(fits(pattern) for pattern in listed(statement[what]))


def _holds(operator: str, keys: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    """Whether every key of a condition has one of its values. A missing key satisfies only negated operators."""
    known = {key.lower(): value for key, value in context.items()}
    return all(
        _one_holds(operator, known.get(key.lower()), [_resolved(one, known) for one in listed(wanted)])
        for key, wanted in keys.items()
    )


def _resolved(value: Any, known: Mapping[str, str]) -> Any:
    """A value with its policy variables (``${aws:PrincipalAccount}``) replaced with the request's values."""
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: known.get(found[1].lower(), found[0]), value)


def _one_holds(operator: str, value: str | None, wanted: list[Any]) -> bool:
    texts = [str(one).lower() if isinstance(one, bool) else str(one) for one in wanted]
    if operator == "Null":
        return str(value is None).lower() in texts
    if operator.startswith(("ForAllValues:", "ForAnyValue:")):
        every, _, plain = operator.partition(":")
        held = [_one_holds(plain, one, wanted) for one in (value.split(",") if value else [])]
        return all(held) if every == "ForAllValues" else any(held)
    plain = operator.removesuffix("IfExists")
    positive = plain.replace("StringNot", "String").replace("ArnNot", "Arn")
    if positive not in _OPERATORS:
        return False
    if value is None:
        return plain != operator or positive != plain
    return any(_OPERATORS[positive](value, text) for text in texts) == (positive == plain)

"""Every list of the configuration can shrink and change its order in a deployed stack."""

import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from components.config import Settings, parse
from rehearsal.account import Account
from rehearsal.engines.deployment import Deployment, destroy, up
from rehearsal.existing import prepare
from tests.support import METRICS, project

ROLE = "arn:aws:iam::{}:role/{}"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4M2V1Q3bP8yQ0hCq7rT9p0e1k2l3m4n5o6p7q8r9s0 me"
BLOCKS = ["52.95.110.0/24", "52.95.111.0/24"]
GPU = "ml.p5.48xlarge"
# Every list with several elements, and the settings afterwards.
LONG: dict[str, Any] = {
    "kubernetesApiCidrs": BLOCKS,
    # Of one name, in two accounts.
    "administratorRoleArns": [ROLE.format("111122223333", "admin"), ROLE.format("123456789012", "admin")],
    "teams": [
        {
            "name": "vision",
            "roleArns": [ROLE.format("123456789012", one) for one in ("team/ann", "team/bob")],
            "buckets": [{"name": "tokens"}, {"name": "results"}],
        },
        {"name": "speech", "roleArns": [ROLE.format("123456789012", "team/eve")]},
        {"name": "robots"},
    ],
    "workers": [
        {"name": "gone", "instanceType": GPU, "count": 1},
        {"name": "plain", "instanceType": GPU, "fallbackTypes": ["ml.p5e.48xlarge", "ml.p5en.48xlarge"], "count": 1},
        {
            "name": "tested",
            "instanceType": GPU,
            "count": 1,
            "deepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
        },
        {
            "name": "tainted",
            "instanceType": GPU,
            "count": 1,
            "taints": [{"key": key, "value": "yes", "effect": "NoSchedule"} for key in ("one", "two")],
        },
    ],
    "security": {
        "lifecycleWriters": [ROLE.format("123456789012", "ci"), "arn:aws:iam::123456789012:user/rehearsal"],
    },
    "network": {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetId": "subnet-0123456789abcdef0",
        "securityGroupIds": ["sg-0123456789abcdef0"],
        "eksSubnetIds": [f"subnet-0123456789abcdef{n}" for n in (1, 2, 3)],
    },
    "observability": {**METRICS, "grafanaAuthentication": ["SAML", "AWS_SSO"]},
}
# What an existing VPC excludes, and what EKS has not.
CLOSED: dict[str, Any] = {
    "network": {"egress": "vpc-only", "trusted": ["210987654321", "310987654321", "o-exampleorgid"]},
    "users": [
        {"name": f"research{n}", "uid": 2000 + n, "sshKeys": [KEY.replace("J4M2", f"J4{n}{m}") for m in "ab"]}
        for n in (1, 2)
    ],
    "slurm": {
        "accounting": {},
        "accounts": [
            {"name": name, "users": ["research1", "research2"], "qos": ["normal", "late"]} for name in ("lab", "guests")
        ],
        "qos": [{"name": "urgent", "preempts": ["late", "normal"]}, {"name": "late", "preempts": ["normal"]}],
    },
}
# Subnets of a database that cannot move; tests/components/config/test_change_checks.py turns them round.
ALWAYS_TWO = {"slurm.accounting.subnetIds"}
# A HyperPod cluster cannot change its security groups (AWS::SageMaker::Cluster, create-only properties), nor can a file
# system. Another sign-in makes another Grafana workspace (rehearsal/account/replacement.csv).
FOR_LIFE = {"network.securityGroupIds", "observability.grafanaAuthentication"}


def reordered(value: Any) -> Any:
    """The same settings, with every list reversed."""
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in value.items()}
    return [reordered(item) for item in reversed(value)] if isinstance(value, list) else value


def shortened(value: Any, path: str = "") -> Any:
    """The same settings, without the first element of every list that can be shorter."""
    if isinstance(value, dict):
        return {key: shortened(item, f"{path}.{key}".removeprefix(".")) for key, item in value.items()}
    if not isinstance(value, list) or path in FOR_LIFE:
        return value
    return [shortened(item, path) for item in value[1:]]


def lists_of(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The paths of all lists in a settings model."""
    for name, field in model.model_fields.items():
        yield from _lists_in(field.annotation, f"{path}.{field.alias or name}".removeprefix("."))


def _lists_in(annotation: Any, path: str) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from lists_of(annotation, path)
    elif typing.get_origin(annotation) is tuple:
        yield path
        yield from _lists_in(typing.get_args(annotation)[0], path)
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for one in typing.get_args(annotation):
            yield from _lists_in(one, path)


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all lists in the given settings."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths_of(item, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list):
        yield path
        for item in value:
            yield from paths_of(item, path)


def test_no_list_of_the_configuration_is_left_out() -> None:
    assert set(lists_of(Settings)) == {*paths_of(LONG), *paths_of(CLOSED), *ALWAYS_TWO}


@pytest.mark.slow
@pytest.mark.parametrize(("stack", "lists"), [("eks-gpu", LONG), ("dev", CLOSED)])
def test_shortening_and_reordering_every_list_updates_in_place(stack: str, lists: dict[str, Any]) -> None:
    loaded = project(stack, **lists)
    checked = parse(loaded.config)
    with Account(checked.region.name) as account:
        prepare(account, checked)
        long = up(loaded, account)
        assert long.failure == ""
        turned = up(project(stack, **reordered(lists)), account, old=long.state)
        assert turned.failure == ""
        assert set(turned.changes.values()) == {"update"}, _changes(turned)
        short = up(project(stack, **shortened(lists)), account, old=long.state)
        assert short.failure == ""
        assert "replace" not in short.changes.values(), _changes(short)
        # Principals that stay keep their access entry.
        assert {name for name, what in _changes(short).items() if "access" in name and what != "delete"} == set()
        assert destroy(short.state, account) == []
        assert account.leftovers() == []


@pytest.mark.slow
def test_who_moves_to_another_team_keeps_the_access_entry() -> None:
    arn = ROLE.format("123456789012", "eve")
    settings = project("eks-gpu", teams=[{"name": "vision", "roleArns": [arn]}, {"name": "speech"}])
    checked = parse(settings.config)
    with Account(checked.region.name) as account:
        prepare(account, checked)
        before = up(settings, account)
        moved = project("eks-gpu", teams=[{"name": "vision"}, {"name": "speech", "roleArns": [arn]}])
        after = up(moved, account, old=before.state)
        assert after.failure == ""
        assert _changes(after)["eks-access-123456789012/eve"] == "update"


def _changes(deployment: Deployment) -> dict[str, str]:
    return {urn.rsplit("::", 1)[1]: what for urn, what in deployment.changes.items()}

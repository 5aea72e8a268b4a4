"""What a deployer may do: IAM policies for one stack, from what a rehearsal of it deploys.

``permissions.csv`` says which actions each type of resource needs, and each function that the program asks;
``verbs.csv`` says what the verbs ask AWS. The Service Authorization Reference says on what each can be granted, and
with which conditions.

The rights on the state's backend and its key are not here: a stack does not say where its state is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from components.catalogue import rows
from components.catalogue.rows import Words
from components.common.names import CLUSTER_ID_TAG, Names, for_stack
from operations.deployment.own_images import SHARED_TAG
from operations.engine.state import ResourceState, State
from operations.failures import Failure
from operations.target import Target

from .iam_arns import Condition, Place, Places, fitting

if TYPE_CHECKING:
    from rehearsal.account.authorization import Action

# IAM User Guide, "IAM and AWS STS quotas": characters of a managed policy, white space not counted.
POLICY_LIMIT = 6144
_HERE = Path(__file__).parent
_TAGGING = ("CreateTags", "TagResource", "AddTags")
# IAM actions that a service needs for its service-linked role.
_ON_LINKED_ROLES = ("iam:CreateServiceLinkedRole", "iam:AttachRolePolicy", "iam:PutRolePolicy")
# IAM User Guide, "Permissions boundaries for IAM entities", on delegating responsibility: who may give roles rights may
# do so to those with the boundary, and neither takes it away nor edits it.
_SET_BOUNDARY = "iam:PutRolePermissionsBoundary"
_BOUNDED = ("iam:CreateRole", "iam:PutRolePolicy", "iam:AttachRolePolicy", _SET_BOUNDARY)
_NO_EDIT = ("iam:CreatePolicyVersion", "iam:DeletePolicy", "iam:DeletePolicyVersion", "iam:SetDefaultPolicyVersion")
# SageMaker Developer Guide, "IAM for SageMaker training plans", on those who use a plan.
_WITH_PLAN = ("sagemaker:CreateCluster", "sagemaker:UpdateCluster")
# What pulumi-aws asks by a filter, and not by the name: AWS decides about it on everything of the type
# (hashicorp/terraform-provider-aws, issue 35737).
_UNNAMED = ("rds:DescribeDBInstances",)
_FOR_EKS = {"job", "image", "kubeconfig"}
# Whoever deletes a cluster on EKS must be able to list and delete what this verb makes (SageMaker Developer Guide, "IAM
# users for cluster admin", and HyperPod task governance, "Troubleshoot").
_GOVERNANCE = "governance"


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """The actions of a type of resource, the one that makes it first. ``linked``: whose service-linked role AWS makes
    along with it."""

    type: str
    create: Words = ()
    read: Words = ()
    update: Words = ()
    delete: Words = ()
    linked: Words = ()
    source: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """An action that verbs need beside those of Pulumi, and which verbs.

    It is granted on the stack's own resources, and not at all where the stack has none of the type. ``on`` says
    otherwise: ``type`` for all of the type, which AWS or the verb makes, and ``session`` for what sessions with the
    cluster's nodes take.
    """

    action: str
    verbs: Words
    on: Literal["", "type", "session"] = ""

    @property
    def for_deployment(self) -> bool:
        return bool({"deploy", "destroy"} & set(self.verbs))


@dataclass(frozen=True)
class Policies:
    """IAM policies: ``deploy`` for who deploys and destroys a stack, ``operate`` for who looks after its cluster."""

    stack: str
    deploy: list[dict[str, Any]] = field(default_factory=list)
    operate: list[dict[str, Any]] = field(default_factory=list)


@cache
def permissions() -> Mapping[str, Permissions]:
    """The table by type. Raises TableError."""
    return rows.table(_HERE / "permissions.csv", Permissions, "type")


@cache
def questions() -> Mapping[str, Question]:
    """What the verbs ask, by action. Raises TableError."""
    return rows.table(_HERE / "verbs.csv", Question, "action")


def write(target: Target, account: str, cluster_id: str = "") -> Policies:
    """The policies for a stack in an account. Raises Failure where the stack cannot be rehearsed.

    With ``cluster_id``, which AWS gives the cluster, sessions are limited to its nodes by their ARNs, else by tags.
    """
    from rehearsal.account import ACCOUNT_ID, Account
    from rehearsal.engines.deployment import up
    from rehearsal.existing import prepare

    with Account(target.config.region.name) as embedded:
        prepare(embedded, target.config)
        made = up(target.project, embedded)
    if made.failure:
        raise Failure(f"the stack cannot be rehearsed: {made.failure}", f"hyperpod rehearse {target.stack}")
    rehearsed, wanted = (
        for_stack(
            cluster=target.cluster_name,
            region=target.config.region.name,
            account=one,
            project=target.project.name,
            stack=target.stack,
        )
        for one in (ACCOUNT_ID, account)
    )
    found = json.dumps(vars(policies(made.state, rehearsed, ACCOUNT_ID, target.stack, cluster_id)))
    return Policies(**json.loads(found.replace(rehearsed.digest, wanted.digest).replace(ACCOUNT_ID, account)))


def policies(state: State, names: Names, account: str, stack: str, cluster_id: str = "") -> Policies:
    """The policies for a deployed stack with these names."""
    places = Places(state, names, account, cluster_id)
    deploy, operate = _Grants(places), _Grants(places)
    for resource in state.values():
        if resource.in_account and not resource.type.startswith("kubernetes:"):
            deploy.add_resource(resource)
    deploy.add_images(state)
    deploy.add_buckets(state)
    for row in permissions().values():
        if not row.create:
            for name in row.read:  # What the program asks of AWS is not about the stack.
                deploy.add_question(Question(action=name, verbs=("deploy",), on="type"), set())
    for question in questions().values():
        if question.for_deployment:
            deploy.add_question(question, places.all())
        if question.verbs != ("destroy",):
            operate.add_question(question, places.all())
    return Policies(stack, _split([*_kept_boundary(places), *deploy.statements()]), _split(operate.statements()))


class _Grants:
    """What is granted: for each ARN and condition, the actions."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._granted: dict[tuple[str, Condition], set[str]] = {}

    def add_resource(self, resource: ResourceState) -> None:
        """Grant what it takes to create, read, update and delete a resource."""
        row = permissions().get(resource.type)
        if row is None:
            raise LookupError(f"permissions.csv does not have {resource.type}")
        places, own = self._places.beside(resource), self._places.of(resource)
        for name in row.create:
            self._add(name, row, places, own, self._places.tag(resource))
        for name in (*row.read, *row.update):
            self._add(name, row, places, set())
        for name in row.delete:
            self._add(name, row, places | self._places.of_guardduty(resource), set())

    def add_question(self, question: Question, places: set[Place]) -> None:
        """Grant what a verb asks."""
        action = _action(question.action)
        if (set(question.verbs) <= _FOR_EKS or _GOVERNANCE in question.verbs) and not self._places.on_eks:
            return
        if question.on == "session":
            for arn, condition in self._places.sessions(question.action):
                self._grant(question.action, arn, condition)
        elif question.on or not action.types or any(fitting(places, kind) for kind in action.types):
            self._on_kinds(action, places, set(), None)

    def add_images(self, state: State) -> None:
        """Grant sharing images of one's own with HyperPod, by the tag that AWS's own policy asks for (SageMaker
        Developer Guide, "Cluster management with custom AMIs", Permissions required for cluster operations)."""
        groups = [group for one in state.values() for group in one.inputs.get("instanceGroups") or ()]
        images = sorted({group["imageId"] for group in groups if group.get("imageId")})
        key, value = SHARED_TAG
        shared: Condition = (("StringEquals", f"aws:ResourceTag/{key}", (value,)),)
        start = f"arn:{self._places.partition}:ec2:{self._places.region}:"
        for image in images:
            self._grant("ec2:ModifyImageAttribute", f"{start}:image/{image}", shared)
        if images:
            self._grant("ec2:ModifySnapshotAttribute", f"{start}:snapshot/*", shared)
            self._grant("ec2:DescribeSnapshots", "*", ())

    def add_buckets(self, state: State) -> None:
        """Grant looking whether the buckets exist that pods mount."""
        volumes = [one for one in state.values() if one.type == "kubernetes:core/v1:PersistentVolume"]
        attributes = [volume.inputs["spec"]["csi"]["volumeAttributes"] for volume in volumes]
        for name in sorted({one["bucketName"] for one in attributes if "bucketName" in one}):
            self._grant("s3:ListBucket", f"arn:{self._places.partition}:s3:::{name}", ())

    def _add(
        self, name: str, row: Permissions, places: set[Place], new: set[Place], tag: tuple[str, str] | None = None
    ) -> None:
        """Grant an action on what a resource names, and on what it makes."""
        if row.linked and name in _ON_LINKED_ROLES:
            for service in row.linked:
                role = f"arn:{self._places.partition}:iam::{self._places.account}:role/aws-service-role/{service}/*"
                only: Condition = (("StringEquals", "iam:AWSServiceName", (service,)),)
                self._grant(name, role, only if name == "iam:CreateServiceLinkedRole" else ())
            return
        service = name.split(":")[0]
        if service in ("eks", "kms") and not any(place.arn.split(":")[2] == service for place in places):
            return  # The cluster without EKS, and everything without a key of the customer's.
        if name == _SET_BOUNDARY and not self._places.boundary:
            return
        action = _action(name)
        if not action.types and tag and name == row.create[0] and action.knows(f"aws:RequestTag/{tag[0]}", []):
            self._grant(name, "*", (("StringEquals", f"aws:RequestTag/{tag[0]}", (tag[1],)),))
        else:
            self._on_kinds(action, places, new, row)

    def _on_kinds(self, action: Action, places: set[Place], new: set[Place], row: Permissions | None) -> None:
        kinds = [kind for kind in action.types if kind.required or fitting(places, kind)] or list(action.types)
        if not kinds:
            self._grant(action.name, "*", ())
        for kind in kinds:
            if row is not None and kind.name == "role" and not fitting(places, kind):
                continue  # An add-on without a role passes none.
            if kind.name == "training-plan" and action.name not in _WITH_PLAN:
                continue  # The stack tags no plan.
            named = [] if action.name in _UNNAMED else fitting(places, kind)
            for place in named or [self._places.anything(kind)]:
                self._grant(action.name, place.arn, self._condition(action, place, place in new, row, [kind]))

    def _condition(
        self, action: Action, place: Place, new: bool, row: Permissions | None, kinds: Sequence[Any]
    ) -> Condition:
        if action.name == "iam:PassRole":
            return (("StringEquals", "iam:PassedToService", self._places.assumed_by),)
        bounded: Condition = ()
        if action.name in _BOUNDED and self._places.boundary:
            bounded = (("ArnEquals", "iam:PermissionsBoundary", (self._places.boundary,)),)
        if action.name in ("iam:AttachRolePolicy", "iam:DetachRolePolicy"):
            return (("ArnEquals", "iam:PolicyARN", self._places.attached), *bounded)
        if place.tag is None:
            return bounded
        key, value = place.tag
        if new and row is not None:
            creator = row.create[0]
            makes = creator.split(":")[1].startswith(("Create", "Allocate", "Authorize"))
            tagging = action.name.endswith(_TAGGING)
            if tagging or action.name == creator or not makes:
                # What is new has no tags yet, and is to get the stack's. EC2 says in which call.
                if not (tagging or makes) or not action.knows(f"aws:RequestTag/{CLUSTER_ID_TAG}", kinds):
                    return ()
                by: Condition = (("StringEquals", "ec2:CreateAction", (creator.split(":")[1],)),)
                return (
                    ("StringEquals", f"aws:RequestTag/{key}", (value,)),
                    *(by if makes and action.name == "ec2:CreateTags" else ()),
                )
        known = action.knows(f"aws:ResourceTag/{key}", kinds)
        return (("StringEquals", f"aws:ResourceTag/{key}", (value,)),) if known else ()

    def _grant(self, name: str, arn: str, condition: Condition) -> None:
        self._granted.setdefault((arn, condition), set()).add(name)

    def statements(self) -> list[dict[str, Any]]:
        """One statement for everything that is granted on the same ARNs under the same conditions."""
        merged: dict[tuple[Condition, frozenset[str]], list[str]] = {}
        for (arn, condition), names in self._granted.items():
            left = names - self._granted.get((arn, ()), set()) if condition else names
            if left:
                merged.setdefault((condition, frozenset(left)), []).append(arn)
        return [
            _statement(sorted(names), sorted(arns), condition)
            for (condition, names), arns in sorted(merged.items(), key=lambda one: (sorted(one[0][1]), one[0][0]))
        ]


def _kept_boundary(places: Places) -> list[dict[str, Any]]:
    """What nobody may do to the roles' permissions boundary, where the configuration names one."""
    if not places.boundary:
        return []
    roles = f"arn:{places.partition}:iam::{places.account}:role/*"
    kept = [_statement(["iam:DeleteRolePermissionsBoundary"], [roles], (), "Deny")]
    # AWS's own policies, nobody can edit.
    return kept if ":iam::aws:" in places.boundary else [*kept, _statement(_NO_EDIT, [places.boundary], (), "Deny")]


def _action(name: str) -> Action:
    from rehearsal.account.authorization import actions

    return actions(name)[0]


def _statement(
    names: Sequence[str], arns: Sequence[str], condition: Condition, effect: str = "Allow"
) -> dict[str, Any]:
    made: dict[str, Any] = {"Effect": effect, "Action": list(names), "Resource": list(arns)}
    for operator, key, values in condition:
        # Parliament takes no list of one for Bool.
        made.setdefault("Condition", {}).setdefault(operator, {})[key] = (
            values[0] if operator.startswith("Bool") else list(values)
        )
    return made


def _split(statements: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Documents that IAM takes as managed policies, each as full as they come."""
    found: list[dict[str, Any]] = []
    for statement in statements:
        if not found or size({**found[-1], "Statement": [*found[-1]["Statement"], statement]}) > POLICY_LIMIT:
            found.append({"Version": "2012-10-17", "Statement": []})
        found[-1]["Statement"].append(statement)
    return found


def size(document: Mapping[str, Any]) -> int:
    """How many of its characters IAM counts."""
    return len(re.sub(r"\s", "", json.dumps(document)))

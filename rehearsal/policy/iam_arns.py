"""On what a policy for a stack can grant actions: ARNs, with the tags that say whose the resources are.

What has a name is known by its ARN. What AWS gives an id is known by the stack's tag. What the configuration names and
the stack did not make (a VPC, a role, a bucket) is known by its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from components.common.names import CLUSTER_ID_TAG, Names
from components.security.sessions import SESSION
from operations.cluster.sessions import NON_INTERACTIVE, SSH
from operations.deployment.leftovers import GUARDDUTY_TAG
from operations.engine.state import HYPERPOD_CLUSTER, ResourceState, State, tags_of, texts

if TYPE_CHECKING:
    from rehearsal.account.authorization import ResourceType

# EC2's ids of what a configuration names, and the types of the reference that they are.
_EXISTING = {"vpc": "vpc", "subnet": "subnet", "sg": "security-group"}
_EKS_CLUSTER = "aws:eks/cluster:Cluster"
# It is in an option group of RDS's own, on which RDS decides as well (Amazon RDS User Guide, "Permission policies to
# create, modify and, delete resources in Amazon RDS").
_DATABASE = "aws:rds/instance:Instance"
_DOCUMENT = "aws:ssm/document:Document"
# pulumi-aws does not expose an ARN for these.
_WITHOUT_ARN = {"aws:ec2/eip:Eip": "elastic-ip", "aws:ec2/natGateway:NatGateway": "natgateway"}
# Pulumi ends a name that it chooses with seven random digits.
_RANDOM = re.compile(r"-[0-9a-f]{7}$")
# Amazon EKS User Guide, "Amazon EKS security group requirements": the tag of the group that EKS makes.
_EKS_GROUP_TAG = "aws:eks:cluster-name"
# Operator, key and values.
Condition = tuple[tuple[str, str, tuple[str, ...]], ...]
# The documents of AWS by which verbs and the entries of `hyperpod node ssh-config` start sessions, and the one by which
# AWS starts those of `hyperpod node connect` where the stack has none of its own.
_DOCUMENTS, _SHELL = (NON_INTERACTIVE, SSH), "SSM-SessionManagerRunShell"


@dataclass(frozen=True)
class Place:
    """An ARN, which may end in ``*``. Where it does not say whose it is, a tag and its value do."""

    arn: str
    tag: tuple[str, str] | None = None


class Places:
    """The places of a stack, by the texts that name them."""

    def __init__(self, state: State, names: Names, account: str, cluster_id: str = "") -> None:
        self.names, self.account, self._cluster_id = names, account, cluster_id
        self._own = [one for one in state.values() if one.in_account]
        cluster = next(one for one in self._own if one.type == HYPERPOD_CLUSTER)
        _, self.partition, _, self.region, *_ = cluster.id.split(":")
        self._ids = {one.id for one in self._own if not one.inputs.keys() & {"name", "bucket"}}
        self._named: dict[str, set[Place]] = {}
        for one in self._own:
            for text in {one.id, str(one.outputs.get("name", one.id)), _arn_of(one)} - {""}:
                self._named.setdefault(text, set()).update(self.of(one))
            if one.type == _EKS_CLUSTER:
                group = Place(self.arn("ec2", "security-group/*"), (_EKS_GROUP_TAG, one.id))
                self._named[one.outputs["vpcConfig"]["clusterSecurityGroupId"]] = {group}

    def arn(self, service: str, resource: str) -> str:
        """An ARN of the stack's region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def tag(self, one: ResourceState) -> tuple[str, str] | None:
        """The stack's tag, where a resource has it."""
        tags = tags_of(one.inputs)
        return (CLUSTER_ID_TAG, tags[CLUSTER_ID_TAG]) if CLUSTER_ID_TAG in tags else None

    def of(self, one: ResourceState) -> set[Place]:
        """Where a resource itself is."""
        if one.type == "aws:s3/bucketObjectv2:BucketObjectv2":
            return {Place(f"arn:{self.partition}:s3:::{one.inputs['bucket']}/*")}
        arn = _arn_of(one)
        if one.type in _WITHOUT_ARN:
            return {Place(self.arn("ec2", f"{_WITHOUT_ARN[one.type]}/*"), self.tag(one))}
        if not arn:
            return set()
        if one.type == "aws:s3/bucket:Bucket":
            return {Place(arn), Place(f"{arn}/*")}
        if one.type == "aws:cloudwatch/logGroup:LogGroup":
            # Amazon CloudWatch Logs User Guide, "CloudWatch Logs resources and operations": two forms of one ARN.
            return {Place(arn), Place(f"{arn}:*")}
        if one.type == "aws:eks/addon:Addon":
            return {Place(self.arn("eks", f"addon/{one.inputs['clusterName']}/*"))}
        if one.type == "aws:iam/role:Role":
            wide = f"{arn.rpartition('/')[0]}/{self.names.any_role}"
            return {Place(wide if fnmatchcase(arn, wide) else _RANDOM.sub("-*", arn))}
        # An id of AWS's making is another one in another account; a name is not.
        start, *parts = arn.split("/")
        given = {part for text in texts(one.inputs) for part in text.split("/")} - self._ids
        if parts and parts[-1] not in given:
            parts[-1] = "*"
        parts = ["*" if part in self._ids else part for part in parts]
        return {Place("/".join([start, *parts]), self.tag(one) if parts and parts[-1] == "*" else None)}

    def beside(self, one: ResourceState) -> set[Place]:
        """Where a resource is, and everything that its inputs name."""
        found = set(self.of(one))
        for text in texts(one.inputs):
            found |= self._named.get(text) or self._existing(text)
        if one.type == _DATABASE:
            found.add(Place(self.arn("rds", "og:default:*")))
            # AWS Secrets Manager User Guide, "Secrets managed by other AWS services": names begin with the service.
            found.add(Place(self.arn("secretsmanager", "secret:rds!*")))
        return found

    def of_guardduty(self, one: ResourceState) -> set[Place]:
        """What GuardDuty makes in a VPC, and pulumi-aws removes with the VPC and its subnets (terraform-provider-aws,
        pull request 46953)."""
        if one.type not in ("aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"):
            return set()
        return {Place(self.arn("ec2", f"{kind}/*"), GUARDDUTY_TAG) for kind in ("vpc-endpoint", "security-group")}

    def all(self) -> set[Place]:
        """Every place of the stack, and the logs of its nodes, which HyperPod makes."""
        logs = self.arn("logs", f"log-group:/aws/sagemaker/Clusters/{self.names.cluster}/*")
        return {place for places in self._named.values() for place in places} | {Place(logs), Place(f"{logs}:*")}

    def _existing(self, text: str) -> set[Place]:
        """What the configuration names by its id or ARN."""
        kind = _EXISTING.get(text.partition("-")[0])
        if kind and re.fullmatch(r"[a-z]+-[0-9a-f]{8,17}", text):
            return {Place(self.arn("ec2", f"{kind}/{text}"))}
        if text.startswith("s3://"):
            return {Place(f"arn:{self.partition}:s3:::{text.removeprefix('s3://').split('/')[0]}")}
        # AWS asks about a training plan beside the cluster ("IAM for SageMaker training plans").
        plan = f"sagemaker:{self.region}:{self.account}:training-plan/"
        own = rf"arn:[\w-]+:(?:(?:iam|kms)::?[\w-]*:?{self.account}:|{plan})[^\s*]+"
        return {Place(text)} if re.fullmatch(own, text) else set()

    def anything(self, kind: ResourceType) -> Place:
        """Every resource of a type, in this account and region; of EKS, in this cluster."""
        values = {"Partition": self.partition, "Region": self.region, "Account": self.account}
        return Place(kind.filled({**values, "ClusterName": self.names.cluster}))

    def sessions(self, action: str) -> Iterator[tuple[str, Condition]]:
        """On what sessions with nodes of the cluster are granted: the nodes, and the documents that start them; to end
        them, those that the caller started (Systems Manager User Guide, "Additional sample IAM policies for Session
        Manager").

        AWS's guides name nodes of HyperPod in two ways, and the Service Authorization Reference in neither: as managed
        instances with the tag ``sagemaker:cluster-name`` (AI on SageMaker HyperPod, "SSH into Cluster"), and as their
        cluster (awsome-distributed-ai, devops-agent). A call asks about one of the two, so both are granted. Without
        the condition, sessions that name no document would need none ("Start a default shell session by specifying the
        default session document in IAM policies").
        """
        if action != "ssm:StartSession":
            yield (
                self.arn("ssm", "session/*"),
                (("StringLike", "ssm:resourceTag/aws:ssmmessages:session-id", ("${aws:userid}",)),),
            )
            return
        own = {place.arn for one in self._own if one.type == _DOCUMENT for place in self.of(one)}
        recorded = self.arn("ssm", f"document/{self.names.document(SESSION)}")
        documents = own if recorded in own else own | {self.arn("ssm", f"document/{_SHELL}")}
        for document in (
            *documents,
            *(f"arn:{self.partition}:ssm:{self.region}:*:document/{one}" for one in _DOCUMENTS),
        ):
            yield document, ()
        checked = ("BoolIfExists", "ssm:SessionDocumentAccessCheck", ("true",))
        cluster, instances = "cluster/", "managed-instance/sagemaker-cluster:"
        if self._cluster_id:
            yield self.arn("sagemaker", f"{cluster}{self._cluster_id}"), (checked,)
            yield self.arn("ssm", f"{instances}{self._cluster_id}_*"), (checked,)
            return
        tag = ("StringEquals", f"aws:ResourceTag/{CLUSTER_ID_TAG}", (self.names.cluster_id,))
        yield self.arn("sagemaker", f"{cluster}*"), (checked, tag)
        tag = ("StringEquals", "ssm:resourceTag/sagemaker:cluster-name", (self.names.cluster,))
        yield self.arn("ssm", f"{instances}*"), (checked, tag)

    @property
    def on_eks(self) -> bool:
        """Whether the stack has an EKS cluster."""
        return any(one.type == _EKS_CLUSTER for one in self._own)

    @property
    def assumed_by(self) -> tuple[str, ...]:
        """The services that may be one of the stack's roles, or a role that it is given."""
        trusted = {service for one in self._own if one.type == "aws:iam/role:Role" for service in _services(one)}
        return tuple(sorted(trusted | {"sagemaker.amazonaws.com"}))

    @property
    def boundary(self) -> str:
        """The permissions boundary of the stack's roles, if they have one."""
        roles = (one for one in self._own if one.type == "aws:iam/role:Role")
        return next((one.inputs["permissionsBoundary"] for one in roles if one.inputs.get("permissionsBoundary")), "")

    @property
    def attached(self) -> tuple[str, ...]:
        """The managed policies that the stack attaches."""
        kind = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
        return tuple(sorted({str(one.inputs["policyArn"]) for one in self._own if one.type == kind}))


def fitting(places: set[Place], kind: ResourceType) -> list[Place]:
    """The places that are of a type."""
    found = [place for place in places if kind.arn != "*" and kind.fits(place.arn)]
    # Of a log group's two forms, the one that the action is decided about on.
    return sorted(
        (
            one
            for one in found
            if ":log-group:" not in one.arn or one.arn.endswith(":*") == (":log-stream:" in kind.arn)
        ),
        key=lambda one: (one.arn, one.tag or ("", "")),
    )


def _arn_of(one: ResourceState) -> str:
    """A resource's own ARN; ``arn`` of some types is an input, of what they point to."""
    keys = ("clusterArn", "accessEntryArn", "associationArn", "dashboardArn", "arn")
    own = [one.outputs.get(key) for key in keys if key not in one.inputs]
    return next((str(arn) for arn in (*own, one.id) if arn and str(arn).startswith("arn:") and "|" not in arn), "")


def _services(role: ResourceState) -> Iterator[str]:
    for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
        services = statement["Principal"].get("Service", [])
        yield from [services] if isinstance(services, str) else services

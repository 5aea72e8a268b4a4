"""Who calls the account: with policies given, AWS refuses what they do not allow.

What a call is about comes from the call itself: boto3's requests to moto, and for records what CloudFormation's handler
of the type calls (``handlers.csv``). Which action and which resources that means, the Service Authorization Reference
says.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

from components.catalogue import rows
from components.catalogue.rows import Words
from operations.engine.state import HYPERPOD_CLUSTER, tags_of, texts

from .authorization import Action, ResourceType, actions
from .books import Books, Inputs, Live, Refused
from .grants import Statement, granted
from .keys import keys_of
from .matching import PLACEHOLDER
from .requests import action_of
from .watching import watched

Operation = Literal["create", "update", "delete"]
# Parts of ARNs whose name in the reference differs from the request's, by service.
_PARTS: Mapping[str, Mapping[str, str]] = {
    "ec2": {"GroupId": "SecurityGroupId", "FlowLogIds": "VpcFlowLogId"},
    "s3": {"Bucket": "BucketName", "Key": "ObjectName"},
    "iam": {"RoleName": "RoleNameWithPath"},
    "events": {"Name": "RuleName", "Rule": "RuleName"},
    "ssm": {"Name": "DocumentName"},
    "aps": {"Name": "Namespace"},
    "sns": {"Name": "TopicName"},
    "cloudwatch": {"AlarmNames": "AlarmName", "DashboardNames": "DashboardName"},
    "eks": {"Name": "ClusterName"},
    "rds": {
        "DBInstanceIdentifier": "DbInstanceName",
        "DBParameterGroupName": "ParameterGroupName",
        "DBSubnetGroupName": "SubnetGroupName",
    },
}
# IAM User Guide, "Grant a user permissions to pass a role to an AWS service": calls that pass one, and to whom.
_PASSING = {"DeliverLogsPermissionArn": "vpc-flow-logs.amazonaws.com"}
# What a service asks in the caller's name (AWS re:Post, "What are the least privileges required for a user to perform
# creates, deletes, modifications, backup, and recovery for an Amazon RDS DB instance?"; AWS::RDS::DBInstance).
_INSIDE = {
    "rds:CreateDBInstance": tuple(
        f"ec2:Describe{what}"
        for what in (
            "AccountAttributes",
            "AvailabilityZones",
            "InternetGateways",
            "SecurityGroups",
            "Subnets",
            "VpcAttribute",
            "Vpcs",
        )
    )
}
_TAGGING = ("TagResource", "AddTags", "DeleteTags", "ListTags", "ListTagsForResource")
_ROLE = re.compile(r"arn:[\w-]+:iam::\d+:role/.+")


@dataclass(frozen=True)
class Asked:
    """A decision of IAM's: may this be done to that?"""

    action: str
    resource: str
    context: Mapping[str, str]


@dataclass
class Caller:
    """A principal with these policy statements and no others. ``asked`` is what was decided about its calls."""

    arn: str
    statements: Sequence[Statement]
    asked: list[Asked] = field(default_factory=list)

    def decide(self, action: str, resource: str, context: Mapping[str, str]) -> None:
        """Raise Refused unless the policies allow it."""
        self.asked.append(Asked(action, resource, context))
        if not granted(self.statements, (), action, resource, context):
            raise Refused(
                "AccessDenied", f"User: {self.arn} is not authorized to perform: {action} on resource: {resource}"
            )


@dataclass(frozen=True, kw_only=True)
class Handler:
    """What CloudFormation's handler of a type calls. ``linked``: the services whose service-linked role it makes."""

    type: str
    create: Words = ()
    update: Words = ()
    delete: Words = ()
    linked: Words = ()
    source: str


@cache
def _handlers() -> Mapping[str, Handler]:
    return rows.table(Path(__file__).with_name("handlers.csv"), Handler, "type")


@contextmanager
def calling(
    account: Books, caller: Caller | None, operation: Operation, token: str, inputs: Inputs, live: Live | None = None
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """While this lasts, the account's calls are the caller's, for one operation on one resource. Raises Refused.

    Yields what is to be told the outputs of a record, whose tags are set once it is there.
    """
    if caller is None:
        yield lambda outputs: None
        return
    watch, handler = Watch(account, caller, operation, inputs, live), _handlers().get(token)
    if handler is None:
        with watched(watch.call):
            yield lambda outputs: None
        return
    watch.handle(handler)
    yield lambda outputs: watch.tag(handler, outputs)


class Watch:
    """One operation on one resource, and what IAM knows of it."""

    def __init__(
        self, account: Books, caller: Caller, operation: Operation, inputs: Inputs, live: Live | None = None
    ) -> None:
        self._account, self._caller, self._operation = account, caller, operation
        self._inputs, self._live = inputs, live

    def call(self, model: Any, params: Mapping[str, Any]) -> None:
        """Decide about a request to a service."""
        action = action_of(model.service_model.service_name, model.name)
        service = action.name.split(":")[0]
        if action.name == "rds:DescribeDBInstances" and "DBInstanceIdentifier" not in params:
            # Whatever a filter says (hashicorp/terraform-provider-aws, issue 35737).
            self._caller.decide(action.name, self._account.arn("rds", "db:*"), {})
            return
        context = {"iam:PolicyARN": self._own_arn(params["PolicyArn"])} if "PolicyArn" in params else {}
        if boundary := self._boundary(params):
            context["iam:PermissionsBoundary"] = boundary
        self._decide(action, self._values(service, params), context)
        for name in _INSIDE.get(action.name, ()):
            self._decide(actions(name)[0], self._values("ec2", {}), {})
        if action.name == "s3:PutObject":
            # Amazon S3 User Guide, "Using server-side encryption with AWS KMS keys".
            for key in keys_of(self._account, params["Bucket"]):
                self._caller.decide("kms:GenerateDataKey", key, self._tags(key))
        if action.name == "logs:CreateLogGroup" and (encrypting := self._inputs.get("kmsKeyId")):
            # CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using AWS KMS", step 3.
            via = {"kms:ViaService": f"logs.{self._account.region}.amazonaws.com"}
            self._caller.decide("kms:DescribeKey", encrypting, via | self._tags(encrypting))
        for key, principal in _PASSING.items():
            if key in params:
                self._caller.decide("iam:PassRole", params[key], {"iam:PassedToService": principal})
        # EC2 User Guide, "Grant permission to tag Amazon EC2 resources during creation".
        for tagged in params.get("TagSpecifications") or []:
            resource = self._account.arn("ec2", f"{tagged['ResourceType']}/*")
            self._caller.decide("ec2:CreateTags", resource, {**self._requested(), "ec2:CreateAction": model.name})
        if service == "iam" and params.get("Tags"):
            self._decide(actions("iam:TagRole")[0], self._values(service, params), {})

    def handle(self, handler: Handler) -> None:
        """Decide about what a handler calls."""
        given = list(texts(self._inputs))
        for name in getattr(handler, self._operation):
            service = name.split(":")[0]
            if name.endswith(_TAGGING):
                continue
            if service == "kms" and not any(":kms:" in text for text in given):
                continue  # Only for a customer's key.
            if service == "eks" and handler.type.endswith("sagemaker:Cluster") and not any(":eks:" in t for t in given):
                continue  # Only with EKS.
            if name in ("iam:CreateServiceLinkedRole", "iam:PutRolePolicy") and handler.linked:
                for linked in handler.linked:
                    role = self._account.arn("iam", f"role/aws-service-role/{linked}/its", region="")
                    self._caller.decide(name, role, {"iam:AWSServiceName": linked})
            elif name in ("iam:PassRole", "iam:GetRole", "iam:ListAttachedRolePolicies"):
                for role in sorted({text for text in given if _ROLE.fullmatch(text)}):
                    self._pass(name, role)
            else:
                self._decide(
                    actions(name)[0],
                    self._values(service, self._inputs),
                    {} if ":Create" in name else self._carried(),
                )

    def tag(self, handler: Handler, outputs: Mapping[str, Any]) -> None:
        """Decide about the tags of a record that is there."""
        for name in getattr(handler, self._operation):
            if name.endswith(_TAGGING):
                keys = ("clusterArn", "computeQuotaArn", "accessEntryArn", "associationArn", "arn")
                arn = next(str(outputs[key]) for key in keys if key in outputs)
                self._caller.decide(name, arn, {**self._carried(), **self._tags(arn)})

    def _pass(self, name: str, role: str) -> None:
        found = next((one for one in self._account.find("aws:iam/role:Role") if one.outputs["arn"] == role), None)
        services = re.findall(r'"([\w.-]+\.amazonaws\.com)"', found.inputs.get("assumeRolePolicy", "") if found else "")
        for service in services or ["sagemaker.amazonaws.com"]:
            self._caller.decide(name, role, {"iam:PassedToService": service} if name == "iam:PassRole" else {})

    def _decide(self, action: Action, values: Mapping[str, list[str]], context: Mapping[str, str]) -> None:
        named = [text for text in texts(self._inputs) if text.startswith("arn:")]
        found: list[str] = []
        for kind in action.types:
            by_arn = action.name.startswith(("aps:", "eks:", "kms:", "sagemaker:")) and kind.arn != "*"
            found += [arn for arn in named if by_arn and kind.fits(arn)] or self._arns(kind, values)
        for arn in found or ["*"]:
            self._caller.decide(action.name, arn, {**context, **self._tags(arn)})

    def _arns(self, kind: ResourceType, values: Mapping[str, list[str]]) -> list[str]:
        """The resources of a type that a call names; one of an unknown id, where the action demands the type."""
        names = list(dict.fromkeys(PLACEHOLDER.findall(kind.arn)))
        chosen = [dict(zip(names, one, strict=True)) for one in product(*(values.get(name, ["*"]) for name in names))]
        return [kind.filled(one) for one in chosen if kind.required or "*" not in one.values()]

    def _tags(self, arn: str) -> dict[str, str]:
        """What IAM knows of tags: those of the resource that is there, and those that the request brings."""
        there = next((one for one in self._account.live.values() if self._is(one, arn)), None)
        if there is None and self._live is not None and arn.endswith("*"):
            there = self._live
        own = tags_of(there.inputs) if there else self._in_moto(arn)
        tags = {f"aws:ResourceTag/{key}": value for key, value in own.items()}
        return {**(self._requested() if self._operation == "create" else {}), **tags}

    def _in_moto(self, arn: str) -> dict[str, str]:
        """The tags of what is being made, or was made by AWS."""
        if arn.endswith("*"):
            return {}
        if ":ec2:" not in arn:
            return tags_of(self._inputs) if self._operation == "create" else {}
        filters = [{"Name": "resource-id", "Values": [arn.rpartition("/")[2]]}]
        return {one["Key"]: one["Value"] for one in self._account.client("ec2").describe_tags(Filters=filters)["Tags"]}

    def _is(self, one: Live, arn: str) -> bool:
        return arn in one.identifiers or arn.rpartition("/")[2] == one.id

    def _carried(self) -> dict[str, str]:
        return {f"aws:ResourceTag/{key}": value for key, value in tags_of(self._inputs).items()}

    def _requested(self) -> dict[str, str]:
        return {f"aws:RequestTag/{key}": value for key, value in tags_of(self._inputs).items()}

    def _values(self, service: str, params: Mapping[str, Any]) -> dict[str, list[str]]:
        """The parts of ARNs that a request reveals, itself or through the ids in it."""
        account = self._account
        values = {"Partition": [account.partition], "Region": [account.region], "Account": [account.account_id]}
        named = {**_PARTS.get(service, {})}
        for key, value in params.items():
            found = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
            if not found:
                continue
            key = key[0].upper() + key[1:]
            values[named.get(key, key.removesuffix("s") if key.endswith("Ids") else key)] = found
            if key == "AssociationId":
                # What is associated is what AWS decides about.
                live = next(
                    one for one in account.live.values() if found[0] in (one.id, one.outputs.get("associationId"))
                )
                ids = {f"{k[0].upper()}{k[1:]}": [v] for k, v in live.inputs.items() if isinstance(v, str)}
                values = {**ids, **values}
        buckets = [text.removeprefix("s3://").split("/")[0] for text in texts(params) if text.startswith("s3://")]
        if service == "s3" and buckets:
            values["BucketName"] = buckets
        clusters = [text.rpartition("/")[2] for text in texts(params) if re.match(r"arn:[\w-]+:eks:.*:cluster/", text)]
        if service == "eks" and clusters:
            values.setdefault("ClusterName", clusters)
        if service == "eks" and (cluster := account.live.get((HYPERPOD_CLUSTER, str(params.get("clusterArn"))))):
            # What a handler asks EKS about what belongs to a HyperPod cluster.
            values["ClusterName"] = [cluster.inputs["orchestrator"]["eks"]["clusterArn"].rpartition("/")[2]]
        if service == "ssm" and "Name" in params:
            values["ParameterNameWithoutLeadingSlash"] = [params["Name"].removeprefix("/")]
        if service == "rds" and "Engine" in params:
            # Amazon RDS User Guide, "Permission policies to create, modify and, delete resources in Amazon RDS": it is
            # decided about the option group too, also where that is RDS's own.
            version = params["EngineVersion"].replace(".", "-")
            values["OptionGroupName"] = [f"default:{params['Engine']}-{version}"]
        if service == "sns" and "TopicArn" in params:
            values["TopicName"] = [params["TopicArn"].rpartition(":")[2]]
        if "ResourceIds" in params:
            values["VpcId"] = list(params["ResourceIds"])
        if self._live is not None and service == "kms":
            values["KeyId"] = [self._live.id]
        return values

    def _boundary(self, params: Mapping[str, Any]) -> str:
        """The boundary that a request sets, or that the role has about which it is (IAM User Guide, "Available keys
        for IAM", iam:PermissionsBoundary)."""
        role = self._account.live.get(("aws:iam/role:Role", params.get("RoleName", "")))
        return str(params.get("PermissionsBoundary") or (role and role.inputs.get("permissionsBoundary")) or "")

    def _own_arn(self, arn: str) -> str:
        """moto knows AWS's managed policies under the commercial partition only."""
        return arn.replace("arn:aws:", f"arn:{self._account.partition}:", 1)

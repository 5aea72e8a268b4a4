"""The account's books: what exists in it, and boto3 clients for the part that moto plays."""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config

from .watching import as_aws, before_call

ACCOUNT_ID = "123456789012"
RELEASE = "kubernetes:helm.sh/v3:Release"
Inputs = Mapping[str, Any]


class Refused(Exception):
    """AWS refuses a request. The text is AWS's error code, a colon, and the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class HalfMade(Refused):
    """A creation that AWS accepted and that failed later. The resource stays, failed, until somebody deletes it."""

    def __init__(self, refused: Refused, resource_id: str, outputs: Mapping[str, Any]) -> None:
        Exception.__init__(self, str(refused))
        self.code, self.id, self.outputs = refused.code, resource_id, dict(outputs)


@dataclass
class Live:
    """A resource that exists. ``began`` is the virtual second of its request, ``ready_at`` the one from which others
    can rely on it, ``notes`` what AWS remembers about it internally.
    """

    type: str
    name: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    ready_at: float = 0.0
    began: float = 0.0
    ours: bool = True
    references: frozenset[str] = frozenset()
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def identifiers(self) -> set[str]:
        """The ids and ARNs by which other resources can refer to it."""
        keys = ("arn", "clusterArn", "workspaceId")
        # A target's ARN is what it sends events to, and a topic's policy has the topic's ARN for its id.
        of_another = {self.inputs.get(key) for key in keys}
        own = {self.id} - of_another | {
            str(self.outputs[key]) for key in keys if self.outputs.get(key) != self.inputs.get(key)
        }
        # A database's password, which RDS keeps.
        own |= {str(one["secretArn"]) for one in self.outputs.get("masterUserSecrets") or ()}
        return {identifier for identifier in own if identifier}


class Books:
    """One AWS account in one region: its content, without the rules on changes."""

    def __init__(self, region: str, quotas: Mapping[str, int] | None = None) -> None:
        self.region, self.account_id = region, ACCOUNT_ID
        self.partition = _partition(region)
        self.quotas = dict(quotas or {})
        self.live: dict[tuple[str, str], Live] = {}
        self.kept: set[str] = set()
        # By type and id what the running command deletes: the virtual seconds from which and until which it goes.
        self.leaving: dict[tuple[str, str], tuple[float, float]] = {}
        self.now = 0.0
        # Whether pulumi-kubernetes takes over objects that are there already (its provider's upsertExistingObjects).
        self.upserts = False
        # Whether GuardDuty monitors the account's EKS clusters, with agents that it manages.
        self.guardduty = False

    def client(self, service: str) -> Any:
        """A boto3 client of the account; botocore checks the shape of every request."""
        return _client(service, self.region)

    def show(self, service: str, operation: str, **request: Any) -> None:
        """Show a call that is not made through a client to whoever watches calls. Raises Refused."""
        before_call(request, self.client(service).meta.service_model.operation_model(operation))

    def new_id(self, prefix: str) -> str:
        """A new id in AWS's format."""
        return f"{prefix}-{secrets.token_hex(8)}0"

    def arn(self, service: str, resource: str, *, region: str | None = None) -> str:
        """An ARN of this account."""
        return (
            f"arn:{self.partition}:{service}:{self.region if region is None else region}:{self.account_id}:{resource}"
        )

    def prefix_list(self, service: str) -> str:
        """The id of the prefix list that a gateway endpoint's service has in this region."""
        with as_aws():
            lists = self.client("ec2").describe_managed_prefix_lists()["PrefixLists"]
        found = next((one["PrefixListId"] for one in lists if one["PrefixListName"] == service), None)
        return found or f"pl-{hashlib.sha256(service.encode()).hexdigest()[:8]}"

    def adopt(
        self,
        type_token: str,
        name: str,
        resource_id: str,
        inputs: dict[str, Any],
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a resource that AWS or somebody else created."""
        live = Live(type_token, name, resource_id, inputs, {**inputs, **(outputs or {})}, self.now)
        self.live[type_token, resource_id] = live

    def find(self, type_token: str, *, by: float | None = None, **inputs: Any) -> Iterator[Live]:
        """Live resources of a type with these inputs; with ``by``, only those ready at that virtual time."""
        for live in list(self.live.values()):
            matches = live.type == type_token and all(live.inputs.get(k) == v for k, v in inputs.items())
            if matches and (by is None or live.ready_at <= by):
                yield live

    def charts_installed(self) -> bool:
        """Whether the EKS cluster has a Helm release, which HyperPod requires."""
        return any(self.find(RELEASE, by=self.now))


@cache
def _client(service: str, region: str) -> Any:
    """Creating clients is slow, and moto's patches also reach clients that are older than the account."""
    # Without a signature, which nobody but moto's S3 asks for, and with a fixed user agent: botocore spends a fifth of
    # each request on the two. With one attempt: what moto refuses once it refuses again, after a pause. And at AWS's
    # own address, whatever the environment of a served account says: moto answers no other.
    signature = None if service == "s3" else UNSIGNED
    config = Config(
        signature_version=signature,
        user_agent="rehearsal",
        retries={"total_max_attempts": 1},
        ignore_configured_endpoint_urls=True,
    )
    client = boto3.client(service, region_name=region, config=config)
    client.meta.events.register("before-parameter-build.*.*", before_call)
    return client


@cache
def _partition(region: str) -> str:
    return str(boto3.session.Session().get_partition_for_region(region))

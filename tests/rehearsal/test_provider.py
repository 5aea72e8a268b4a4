"""The embedded account as Pulumi providers, called directly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pulumi
import pytest
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2, resource_pb2, resource_pb2_grpc, status_pb2

from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Live
from rehearsal.engines import protocol
from rehearsal.engines.provider import EmbeddedProvider

LOGS = "aws:cloudwatch/logGroup:LogGroup"
ROLE = "aws:iam/role:Role"
OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
PARAMETER = "aws:ssm/parameter:Parameter"
EKS = "aws:eks/cluster:Cluster"


class Aborted(Exception):
    """Stands for gRPC's exception when a method aborts. ``status`` is what it sends besides the message."""

    status: Any


class Context:
    """The part of gRPC's context that the provider uses."""

    status = status_pb2.Status()

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        aborted = Aborted(f"{code.name}: {details}")
        aborted.status = self.status
        raise aborted

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes]]) -> None:
        self.status = status_pb2.Status.FromString(dict(metadata)["grpc-status-details-bin"])


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with Account("us-west-2") as account:
        yield account


@pytest.fixture
def aws(account: Account, tmp_path: Path) -> EmbeddedProvider:
    return EmbeddedProvider(account, "aws", tmp_path)


def ask(servicer: EmbeddedProvider, method: str, type_token: str, name: str = "thing", **fields: Any) -> Any:
    """Make one call, with dictionaries as protobuf structs."""
    request: Any = getattr(provider_pb2, f"{method.removesuffix('Config')}Request")
    fields |= {"type": type_token, "name": name}
    values = {k: protocol.serialize(v) if isinstance(v, dict) else v for k, v in fields.items()}
    urn = f"urn:pulumi:dev::hyperpod::hyperpod:index:Network${type_token}::{name}"
    return getattr(servicer, method)(request(urn=urn, **values), Context())


def values(struct: Any) -> dict[str, Any]:
    return protocol.deserialize(struct)[0]


def test_a_resource_without_a_name_gets_one_and_keeps_it_but_not_in_its_replacement(aws: EmbeddedProvider) -> None:
    first = ask(aws, "Check", ROLE, news={"path": "/"}).inputs
    later = ask(aws, "Check", ROLE, olds=first, news={"path": "/a/"}).inputs
    assert values(first)["name"] == values(later)["name"]
    assert values(first)["name"].startswith("thing-")
    diff = ask(aws, "Diff", ROLE, old_inputs=first, news=later)
    assert list(diff.replaces) == ["path"]
    assert not diff.deleteBeforeReplace
    assert values(ask(aws, "Check", ROLE, news={"path": "/a/"}).inputs)["name"] != values(first)["name"]


def test_a_chosen_name_is_kept_and_is_free_only_after_the_old_resource_is_deleted(
    aws: EmbeddedProvider,
) -> None:
    first = ask(aws, "Check", ROLE, news={"name": "mine", "path": "/"}).inputs
    later = ask(aws, "Check", ROLE, olds=first, news={"name": "mine", "path": "/a/"}).inputs
    assert values(later) == {"name": "mine", "path": "/a/", "tagsAll": {}}
    assert ask(aws, "Diff", ROLE, old_inputs=first, news=later).deleteBeforeReplace


def test_a_preview_creates_nothing_and_leaves_what_aws_computes_unknown(aws: EmbeddedProvider) -> None:
    before = set(aws.account.live)
    news = {"name": "preview", "vpcConfig": {"subnetIds": [rpc.UNKNOWN]}}
    answer = ask(aws, "Create", EKS, properties=news, preview=True)
    assert answer.id == ""
    assert answer.properties["vpcConfig"]["clusterSecurityGroupId"] == rpc.UNKNOWN
    assert answer.properties["vpcConfig"]["subnetIds"][0] == rpc.UNKNOWN
    assert "arn" not in answer.properties
    assert set(aws.account.live) == before


def test_a_preview_of_an_update_keeps_what_aws_computed(aws: EmbeddedProvider) -> None:
    old = {"name": "c", "vpcConfig": {"endpointPublicAccess": False}}
    olds = {**old, "arn": "arn", "vpcConfig": {"endpointPublicAccess": False, "clusterSecurityGroupId": "sg-1"}}
    news = {"name": "c", "vpcConfig": {"endpointPublicAccess": True}}
    answer = values(ask(aws, "Update", EKS, old_inputs=old, olds=olds, news=news, preview=True).properties)
    assert answer == {
        **news,
        "arn": "arn",
        "vpcConfig": {"endpointPublicAccess": True, "clusterSecurityGroupId": "sg-1"},
    }


def test_secrets_stay_secret_all_the_way(aws: EmbeddedProvider) -> None:
    news = {"name": "/token", "type": "String", "value": protocol.secret("hidden")}
    inputs = ask(aws, "Check", PARAMETER, news=news).inputs
    created = ask(aws, "Create", PARAMETER, properties=inputs)
    read = ask(aws, "Read", PARAMETER, id=created.id, inputs=inputs, properties=created.properties)
    updated = ask(aws, "Update", PARAMETER, id=created.id, olds=read.properties, old_inputs=inputs, news=inputs)
    for struct in (inputs, created.properties, read.inputs, read.properties, updated.properties):
        assert rpc.is_rpc_secret(rpc.deserialize_properties(struct)["value"])
    assert aws.account.live[PARAMETER, "/token"].inputs["value"] == "hidden"
    ask(aws, "Delete", PARAMETER, id=created.id)


def test_a_refresh_of_what_nobody_touched_answers_what_the_engine_has_already(aws: EmbeddedProvider) -> None:
    inputs = ask(aws, "Check", LOGS, "refreshed", news={"retentionInDays": 30}).inputs
    created = ask(aws, "Create", LOGS, "refreshed", properties=inputs)
    read = ask(aws, "Read", LOGS, id=created.id, inputs=inputs, properties=created.properties)
    assert (read.id, read.inputs, read.properties) == (created.id, inputs, created.properties)


def test_groups_that_aws_returns_in_another_order_are_no_difference(account: Account, tmp_path: Path) -> None:
    """As SageMaker does (hashicorp/terraform-provider-awscc, issues 3025 and 3110)."""
    groups = [{"instanceGroupName": name, "instanceCount": 2} for name in ("workers", "system")]
    native, known = EmbeddedProvider(account, "aws-native", tmp_path), {"instanceGroups": groups}
    made = {"instanceGroups": groups[::-1]}
    account.live[HYPERPOD_CLUSTER, "arn"] = Live(HYPERPOD_CLUSTER, "cluster", "arn", made, made)
    read = ask(native, "Read", HYPERPOD_CLUSTER, id="arn", inputs=known, properties=made)
    assert (values(read.inputs), values(read.properties)) == (known, made)
    assert not ask(native, "Diff", HYPERPOD_CLUSTER, id="arn", old_inputs=made, news=known).diffs
    made["instanceGroups"] = [groups[1], {**groups[0], "instanceCount": 3}]
    read = ask(native, "Read", HYPERPOD_CLUSTER, id="arn", inputs=known, properties=made)
    assert values(read.inputs) == made
    assert list(ask(native, "Diff", HYPERPOD_CLUSTER, id="arn", old_inputs=read.inputs, news=known).diffs) == [
        "instanceGroups"
    ]
    del account.live[HYPERPOD_CLUSTER, "arn"]


def test_a_refresh_sees_what_somebody_changed_and_what_is_gone(aws: EmbeddedProvider) -> None:
    inputs = ask(aws, "Check", LOGS, "drift", news={"retentionInDays": 30}).inputs
    created = ask(aws, "Create", LOGS, "drift", properties=inputs)
    aws.account.update(LOGS, created.id, {"name": created.id, "retentionInDays": 7})
    read = ask(aws, "Read", LOGS, id=created.id, inputs=inputs, properties=created.properties)
    assert values(read.inputs)["retentionInDays"] == values(read.properties)["retentionInDays"] == 7
    ask(aws, "Delete", LOGS, id=created.id)
    assert ask(aws, "Read", LOGS, id=created.id, inputs=inputs, properties=created.properties).id == ""


def test_an_edited_file_is_a_change_and_an_unchanged_one_is_none(aws: EmbeddedProvider) -> None:
    def source(content_hash: str) -> dict[str, Any]:
        asset = {rpc._special_sig_key: rpc._special_asset_sig, "path": "run.sh", "hash": content_hash}  # type: ignore[attr-defined]
        return {"bucket": "b", "key": "k", "source": asset}

    unchanged = ask(aws, "Diff", OBJECT, old_inputs=source("1"), news=source("1"))
    assert unchanged.changes == provider_pb2.DiffResponse.DIFF_NONE
    edited = ask(aws, "Diff", OBJECT, old_inputs=source("1"), news=source("2"))
    assert (list(edited.diffs), list(edited.replaces)) == (["source"], [])


def test_a_file_is_found_in_the_program_s_folder_from_wherever_this_runs(aws: EmbeddedProvider) -> None:
    (aws.folder / "run.sh").write_text("echo hello\n")
    bucket = ask(aws, "Create", "aws:s3/bucket:Bucket", properties={"bucket": "files-of-a-test", "forceDestroy": True})
    news = {"bucket": bucket.id, "key": "k", "source": pulumi.FileAsset("run.sh")}
    created = ask(aws, "Create", OBJECT, properties=news)
    body = aws.account.client("s3").get_object(Bucket=bucket.id, Key="k")["Body"].read()
    assert body == b"echo hello\n"
    assert created.properties["source"]["path"] == "run.sh"


def test_another_orchestrator_is_another_cluster_but_more_workers_are_not(aws: EmbeddedProvider) -> None:
    def cluster(orchestrator: str, count: int) -> dict[str, Any]:
        return {"clusterName": "c", "orchestrator": {orchestrator: {}}, "instanceGroups": [{"instanceCount": count}]}

    kind = "aws-native:sagemaker:Cluster"
    replaced = ask(aws, "Diff", kind, old_inputs=cluster("slurm", 1), news=cluster("eks", 1))
    assert list(replaced.replaces) == ["orchestrator"]
    assert replaced.deleteBeforeReplace
    assert list(ask(aws, "Diff", kind, old_inputs=cluster("slurm", 1), news=cluster("slurm", 2)).replaces) == []


def test_a_type_the_account_does_not_know_is_refused_already_in_the_preview(aws: EmbeddedProvider) -> None:
    failures = ask(aws, "Check", "aws:sqs/queue:Queue", news={}).failures
    assert [f.reason for f in failures] == ["the embedded account does not know aws:sqs/queue:Queue"]


def test_what_the_account_refuses_is_an_error_in_aws_s_words(aws: EmbeddedProvider) -> None:
    subnet = {"vpcId": "vpc-0123456789abcdef0", "cidrBlock": "10.0.0.0/24", "availabilityZoneId": "usw2-az1"}
    with pytest.raises(Aborted, match=r"^FAILED_PRECONDITION: InvalidVpcID.NotFound: the vpc 'vpc-0123456789abcdef0'"):
        ask(aws, "Create", "aws:ec2/subnet:Subnet", properties=subnet)


def test_it_knows_whose_account_it_is_and_refuses_functions_it_does_not_know(aws: EmbeddedProvider) -> None:
    def invoke(token: str, **arguments: str) -> Any:
        return aws.Invoke(provider_pb2.InvokeRequest(tok=token, args=protocol.serialize(arguments)), Context())

    answer = invoke("aws:index/getCallerIdentity:getCallerIdentity")
    assert getattr(answer, "return")["accountId"] == aws.account.account_id
    with pytest.raises(Aborted, match="UNIMPLEMENTED: the embedded account does not answer aws:ec2/getAmi:getAmi"):
        invoke("aws:ec2/getAmi:getAmi")
    with pytest.raises(Aborted, match="FAILED_PRECONDITION: NotFoundException: Key 'mine' does not exist"):
        invoke("aws:kms/getKey:getKey", keyId="mine")


def test_another_region_is_another_provider_and_other_tags_are_not(aws: EmbeddedProvider) -> None:
    old = {"region": "us-west-2", "defaultTags": "{}"}
    token = "pulumi:providers:aws"
    assert list(ask(aws, "DiffConfig", token, old_inputs=old, news={**old, "region": "eu-west-1"}).replaces)
    retagged = ask(aws, "DiffConfig", token, old_inputs=old, news={**old, "defaultTags": "x"})
    assert (list(retagged.diffs), list(retagged.replaces)) == (["defaultTags"], [])


class Monitor:
    """The engine's side of a component: records what is registered, and returns outputs except in a preview."""

    preview = False

    def __init__(self) -> None:
        self.registered: dict[str, Any] = {}
        self.finished: list[str] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.registered[request.name] = request
        known = values(request.object)
        if not self.preview and request.custom:
            known |= {"arn": f"arn:aws:eks:us-west-2:1:{request.name}", "endpoint": "https://e"}
            known |= {"certificateAuthority": {"data": "Y2E="}}
        resource_id = "" if self.preview else f"id-of-{request.name}"
        return resource_pb2.RegisterResourceResponse(
            urn=f"urn:{request.name}", id=resource_id, object=protocol.serialize(known)
        )

    def RegisterResourceOutputs(self, request: Any) -> None:  # noqa: N802
        self.finished.append(request.urn)


def construct(aws: EmbeddedProvider, monkeypatch: pytest.MonkeyPatch, **inputs: Any) -> tuple[Any, Monitor]:
    monitor = Monitor()
    monkeypatch.setattr(resource_pb2_grpc, "ResourceMonitorStub", lambda channel: monitor)
    depends = provider_pb2.ConstructRequest.PropertyDependencies(urns=["urn:subnet"])
    request = provider_pb2.ConstructRequest(
        type="eks:index:Cluster",
        name="eks",
        parent="urn:parent",
        monitorEndpoint="127.0.0.1:1",
        inputs=protocol.serialize({"name": "c", "version": "1.34", **inputs}),
        inputDependencies={"privateSubnetIds": depends},
        dependencies=["urn:logs"],
        providers={"aws": "urn:aws::id", "aws-native": "urn:native::id"},
    )
    return aws.Construct(request, Context()), monitor


def test_a_component_s_children_are_below_it_with_the_program_s_provider(
    aws: EmbeddedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, monitor = construct(aws, monkeypatch, privateSubnetIds=["subnet-1"])
    cluster, role = monitor.registered["eks-eksCluster"], monitor.registered["eks-eksRole-role"]
    assert (monitor.registered["eks"].parent, cluster.parent, role.parent) == (
        "urn:parent",
        "urn:eks",
        "urn:eks-eksRole",
    )
    assert (cluster.provider, role.provider) == ("urn:aws::id", "urn:aws::id")
    assert monitor.registered["eks-eks-k8s"].provider == ""
    # Dependencies of inputs go to the cluster; those of the component as a whole stay with the component.
    assert set(cluster.dependencies) == {"urn:eks-eksRole-role", "urn:eks-eksRole-4b490823", "urn:subnet"}
    assert list(monitor.registered["eks"].dependencies) == ["urn:logs"]
    assert "get-token" in answer.state["kubeconfigJson"]
    assert list(answer.stateDependencies["kubeconfig"].urns) == ["urn:eks-eksCluster"]
    assert monitor.finished == ["urn:eks"]


def test_a_component_s_preview_passes_unknowns_on(aws: EmbeddedProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Monitor, "preview", True)
    answer, monitor = construct(aws, monkeypatch, privateSubnetIds=[rpc.UNKNOWN])
    cluster = monitor.registered["eks-eksCluster"].object
    assert cluster["roleArn"] == rpc.UNKNOWN
    assert cluster["vpcConfig"]["subnetIds"][0] == rpc.UNKNOWN
    assert "kubeconfig" not in answer.state
    assert answer.state["eksCluster"]["urn"] == "urn:eks-eksCluster"

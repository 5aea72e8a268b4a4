"""`--serve`: the script works in a shell, AWS answers the verbs from the account, and Ctrl-C leaves nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from operations.aws import SERVED
from operations.engine.state import HYPERPOD_CLUSTER
from operations.failures import Exit
from rehearsal.account import Account, Refused
from rehearsal.account.provisioning import note, note_lacking
from rehearsal.engines.real import place
from rehearsal.served.api import Api, serving
from rehearsal.served.serving import write_environment
from tests.golden.stacks import GOLDEN, account_of
from tests.operations.aws import ended, run, run_json
from tests.operations.small import Planning
from tests.support import ROOT, config, project

KEY = "AKIAKNOWN"
# What differs from one served account to the next, and so do the columns' widths.
_IDS = re.compile(r"\b(?:i|fs|subnet|sg)-[0-9a-f]{17}\b|\b10\.1\.\d+\.\d+\b")


def test_the_script_to_source_sets_everything_and_goes_to_the_project() -> None:
    with Account("us-west-2") as account, place(project(), account) as at:
        script = write_environment(at, account.region, KEY, "http://127.0.0.1:9")
        assert script.stat().st_mode & 0o077 == 0
        names = "$PULUMI_DEBUG_PROVIDERS|$PULUMI_BACKEND_URL|$AWS_ENDPOINT_URL|${AWS_PROFILE-unset}"
        told = f'source "$1"; pwd; echo "{names}"; command -v session-manager-plugin python'
        found = subprocess.run(
            ["bash", "-c", told, "bash", str(script)],
            env={**os.environ, "AWS_PROFILE": "mine"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert found[2:] == [str(script.parent / "bin" / "session-manager-plugin"), str(Path(sys.prefix, "bin/python"))]
        assert found[0] == str(at.project)
        assert (Path(found[0]) / "Pulumi.dev.yaml").is_file()
        assert re.fullmatch(
            rf"(\w[\w-]*:\d+,)*kubernetes:\d+(,\w+:\d+)*\|{at.backend.as_uri()}\|http://127\.0\.0\.1:9\|unset", found[1]
        )
    assert not script.exists()


@pytest.mark.parametrize("more", [["--serve"], ["--engine", "pulumi"]])
def test_changes_are_the_embedded_engines_and_bad_company_is_2(more: list[str]) -> None:
    assert "--serve" in ended(Exit.BAD_INPUT, "rehearse", "--then", "size=medium", *more)[1]


def _asked(api: Api, service: str, operation: str, *, key: str = KEY, **request: Any) -> tuple[int, Any]:
    """The status and the document that a service with JSON answers."""
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={key}/20261125/us-west-2/{service}/aws4_request, ...",
        "X-Amz-Target": f"Any.{operation}",
    }
    status, _, body = api.reply("POST", "/", headers, json.dumps(request).encode())
    return status, json.loads(body)


def test_every_user_of_the_machine_reaches_it_and_only_one_with_the_key_is_answered() -> None:
    api = Api(account_of("dev"), config("dev"), "dev", KEY, "")
    status, refused = _asked(api, "sagemaker", "ListClusters", key="AKIAOTHER")
    assert (status, refused["__type"]) == (400, "UnrecognizedClientException")
    assert _asked(api, "sagemaker", "ListClusters")[1]["ClusterSummaries"]


def test_the_answers_have_the_shapes_that_aws_publishes() -> None:
    account = account_of("eks-gpu")
    note(next(account.find(HYPERPOD_CLUSTER)), {"workers": 1}, Refused("Any", "there is no capacity"))
    api = Api(account, config("eks-gpu"), "eks-gpu", KEY, "")
    nodes = _asked(api, "sagemaker", "ListClusterNodes", ClusterName="eks-gpu")[1]["ClusterNodeSummaries"]
    cluster = _asked(api, "sagemaker", "ListClusters")[1]["ClusterSummaries"][0]
    everything = {
        "ClusterName": "eks-gpu",
        "ResourceArn": cluster["ClusterArn"],
        "EventId": "event-0",
        "ServiceCode": "vpc",
        "name": "eks-gpu",
    }
    for (service, operation), answer in api.answers.items():
        if operation == "StartSession":
            continue
        (first, *_) = _asked(api, "sagemaker", "ListClusterNodes", ClusterName="eks-gpu")[1]["ClusterNodeSummaries"]
        found = answer(everything | {"NodeIds": [first["InstanceId"], "i-00000000000000000"]})
        shape = botocore.session.get_session().get_service_model(service).operation_model(operation).output_shape
        report = ParamValidator().validate(found, shape)
        assert not report.has_errors(), f"{operation}: {report.generate_report()}"
    (event,) = _asked(api, "sagemaker", "ListClusterEvents", ClusterName="eks-gpu")[1]["Events"]
    assert "instances of workers, which HyperPod keeps requesting" in event["Description"]
    left = _asked(api, "sagemaker", "ListClusterNodes", ClusterName="eks-gpu")[1]["ClusterNodeSummaries"]
    assert len(left) == len(nodes) - 1, "BatchDeleteClusterNodes takes one for good"


def test_a_group_of_several_types_is_described_by_type_and_shrinks_from_the_last() -> None:
    account = account_of("eks-closed")
    (cluster,) = account.find(HYPERPOD_CLUSTER)
    note_lacking(cluster, "ml.p4d.24xlarge")
    chosen = GOLDEN["eks-closed"]
    api = Api(account, config(chosen.stack, **chosen.settings), chosen.stack, KEY, "")

    def told() -> tuple[Any, list[str]]:
        found = _asked(api, "sagemaker", "DescribeCluster", ClusterName="eks-gpu")[1]
        shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("DescribeClusterResponse")
        assert not ParamValidator().validate(found, shape).has_errors()
        listed = _asked(api, "sagemaker", "ListClusterNodes", ClusterName="eks-gpu")[1]["ClusterNodeSummaries"]
        types = [one["InstanceType"] for one in listed if one["InstanceGroupName"] == "old"]
        return next(one for one in found["InstanceGroups"] if one["InstanceGroupName"] == "old"), types

    group, types = told()
    names = ["ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5en.48xlarge"]
    assert group["InstanceRequirements"] == {"CurrentInstanceTypes": names, "DesiredInstanceTypes": names}
    assert [one["CurrentCount"] for one in group["InstanceTypeDetails"]] == [0, 3, 0]
    assert types == ["ml.p4de.24xlarge"] * 3
    assert "InstanceType" not in group
    old = next(one for one in cluster.inputs["instanceGroups"] if one["instanceGroupName"] == "old")
    cluster.notes.clear()
    old["instanceCount"] = 5
    assert told()[1] == ["ml.p4de.24xlarge"] * 3 + ["ml.p4d.24xlarge"] * 2
    old["instanceCount"] = 3
    assert told()[1] == ["ml.p4de.24xlarge", *["ml.p4d.24xlarge"] * 2]


def test_quotas_are_the_accounts_own_and_grant_the_rest() -> None:
    account = account_of("dev")
    account.quotas = {"ml.g5.16xlarge": 0}
    api = Api(account, config("dev"), "dev", KEY, "")
    quotas = {
        one["QuotaName"]: one["Value"]
        for service in ("sagemaker", "vpc")
        for one in _asked(api, "servicequotas", "ListServiceQuotas", ServiceCode=service)[1]["Quotas"]
    }
    assert quotas["ml.g5.16xlarge for cluster usage"] == 0
    assert quotas["ml.m5.2xlarge for cluster usage"] == 1
    assert quotas["VPCs per Region"] == 5


def test_boto3_finds_every_service_at_the_one_address() -> None:
    with Account("us-west-2") as account, serving(account, config("eks-gpu"), "eks-gpu", KEY) as address:
        signed = {"aws_access_key_id": KEY, "aws_secret_access_key": "any", "region_name": "us-west-2"}
        plain = Config(retries={"total_max_attempts": 1})

        def client(service: str) -> Any:
            return boto3.client(service, endpoint_url=address, config=plain, **signed)

        account.client("s3").create_bucket(
            Bucket="one-bucket", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
        )
        account.client("s3").put_object(Bucket="one-bucket", Key="a/b", Body=b"content")
        assert client("s3").get_object(Bucket="one-bucket", Key="a/b")["Body"].read() == b"content"
        assert len(client("ec2").describe_vpcs()["Vpcs"]) == 1
        assert client("eks").list_clusters()["clusters"] == []
        for service, call, code in (
            ("eks", lambda eks: eks.describe_cluster(name="none"), "ResourceNotFoundException"),
            ("sagemaker", lambda one: one.describe_cluster(ClusterName="none"), "ResourceNotFound"),
            ("sagemaker", lambda one: one.list_hubs(), "NotRehearsed"),
        ):
            with pytest.raises(ClientError) as refused:
                call(client(service))
            assert refused.value.response["Error"]["Code"] == code


@contextmanager
def _served(stack: str, path: str, *options: str) -> Iterator[tuple[Any, str]]:
    """A served stack's process, and a line of bash that enters its environment."""
    with subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "hyperpod.py"), "rehearse", stack, "--serve", *options],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        script = Path(next(line.split()[1] for line in process.stdout if line.strip().startswith("source ")))
        try:
            yield process, f"source {script} &&"
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
    assert process.returncode == 0
    assert "is gone" in rest
    assert not script.parent.exists()


def _said(enter: str, command: str) -> tuple[int, str]:
    """A command's exit code, and what a terminal would have."""
    words = ["bash", "-c", f"{enter} {command} 2>&1"]
    found = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False)
    return found.returncode, found.stdout


def _plain(text: str) -> list[str]:
    """Its lines, without what differs each time."""
    return [re.sub(" {2,}", "  ", line.rstrip()) for line in _IDS.sub("ID", text).splitlines() if line.strip()]


@pytest.mark.slow
def test_the_documented_tour_of_day_2_says_what_the_page_says() -> None:
    section = (ROOT / "docs" / "rehearsal.md").read_text().split("## Day 2\n")[1].split("\n## ")[0]
    steps = re.findall(r"^    \$ (hyperpod .*)\n((?:    (?!\$).*\n)*)", section, re.MULTILINE)
    assert len(steps) >= 5
    ids: dict[str, str] = {}
    with _served("dev", "/usr/bin:/bin") as (_, enter):
        for command, told in steps:
            _, said = _said(enter, " ".join(ids.get(word, word) for word in command.split()))
            assert _plain(said) == _plain(told.replace("\n    ", "\n")[4:])
            ids |= dict(zip(_IDS.findall(told), _IDS.findall(said), strict=True))


@pytest.mark.slow
def test_what_needs_kubernetes_names_the_rehearsal_that_has_it() -> None:
    kubernetes = "the embedded account runs no Kubernetes: `hyperpod rehearse eks eks-gpu`"
    with _served("eks-gpu", "/usr/bin:/bin") as (_, enter):
        for command, code, words in (
            ("status eks-gpu", Exit.GOOD, "eks-gpu: healthy, InService in us-west-2"),
            ("node list eks-gpu", Exit.GOOD, kubernetes),
            ("validate eks-gpu", Exit.CANNOT_KNOW, kubernetes),
            ("job list eks-gpu", Exit.CANNOT_KNOW, kubernetes),
            ("capacity eks-gpu", Exit.GOOD, "usw2-az2"),
            ("scale eks-gpu workers 3 --yes", Exit.CANNOT_KNOW, "there is no Pulumi CLI on this machine"),
        ):
            found, said = _said(enter, f"hyperpod {command}")
            assert (found, words in said) == (code, True), said


@pytest.mark.slow
def test_a_node_whose_scheduler_does_not_run_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Planning()
    monkeypatch.setattr("operations.commands.remove.open_engine", lambda *_, **__: nullcontext((engine, None)))
    with serving(account_of("dev"), config("dev"), "dev", KEY) as address:
        signed = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "any", "AWS_ENDPOINT_URL": address}
        for name, value in {**signed, SERVED: str(ROOT)}.items():
            monkeypatch.setenv(name, value)
        *_, last = run_json("node", "list", "dev", "--no-state")[1]
        code, out, _ = run("node", "remove", "dev", last["instance_id"], "--yes")
    assert (code, out) == (Exit.GOOD, "Removed workers-2. Pulumi.dev.yaml has workers 1.\n")
    assert engine.did == ["configure {'hyperpod:workers[0].count': '1'}"]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("pulumi") is None, reason="there is no Pulumi CLI on PATH")
def test_with_the_pulumi_cli_a_stack_is_deployed_scaled_and_destroyed_as_on_aws() -> None:
    """Into an existing VPC, which somebody mends first."""
    vpc = "vpc-0123456789abcdef0"
    network = {
        "vpcId": vpc,
        "privateSubnetId": "subnet-0123456789abcdef0",
        "securityGroupIds": ["sg-0123456789abcdef0"],
    }
    attribute = (
        """python -c 'import boto3; boto3.client("ec2").modify_vpc_attribute(VpcId="%s", """
        """EnableDnsHostnames={"Value": %s})'"""
    )
    file = ROOT / "Pulumi.dev.yaml"
    before = file.read_bytes()
    with _served("dev", os.environ["PATH"], "--config", f"hyperpod:network={json.dumps(network)}") as (_, enter):
        for command, expected, words in (
            (attribute % (vpc, False), Exit.GOOD, ""),
            ("hyperpod deploy dev --yes", Exit.BAD_INPUT, f"aws ec2 modify-vpc-attribute --vpc-id {vpc}"),
            (attribute % (vpc, True), Exit.GOOD, ""),
            ("hyperpod deploy dev --yes", Exit.GOOD, "dev is deployed: "),
            ("hyperpod scale dev workers 3 --yes", Exit.GOOD, "dev is deployed: 1 resource changed"),
            ("hyperpod node list dev --no-state", Exit.GOOD, "workers-3"),
            ("hyperpod destroy dev --yes", Exit.GOOD, "Nothing is left in the account."),
        ):
            code, said = _said(enter, command)
            assert (code, words in said) == (expected, True), said
    assert file.read_bytes() == before, "the rehearsal changes its copy alone"

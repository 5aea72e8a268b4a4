"""Amazon's collector on EKS: where it is, whom pods let in, and what AWS refuses of it."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from components.kubernetes import metrics_addon
from components.kubernetes.metrics_scraper import PORT, configuration, sources
from components.network.keys import NetworkConfig
from components.observability.keys import Observability
from operations.jobs.render import render
from rehearsal.account import Account, Refused
from tests.golden.stacks import state_of
from tests.support import config, of_type

ON = {"prometheus": "create", "scraper": "training"}
SUBNETS = [("10.0.0.0/24", "usw2-az1"), ("10.0.1.0/24", "usw2-az2"), ("10.0.2.0/24", "usw2-az2")]


def test_pods_let_it_in_at_one_port_from_where_it_is() -> None:
    # The subnets of the control plane, in which no node is.
    assert sources(NetworkConfig()) == ("10.0.2.0/24", "10.0.3.0/24")
    for stack, ports in (("eks-teams", [[], [{"port": PORT, "protocol": "TCP"}]]), ("eks-gpu", [[]])):
        policies = [policy.inputs for policy in of_type(state_of(stack), "NetworkPolicy")]
        for policy in (inputs for inputs in policies if inputs["metadata"]["name"] == "training"):
            assert [rule.get("ports", []) for rule in policy["spec"]["ingress"]][: len(ports)] == ports


def test_it_takes_the_add_ons_place_where_it_reads_everything() -> None:
    text = configuration("research", everything=True)
    assert [job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]] == ["training", "kubelet", "exporters"]
    # Not every parser of YAML knows aliases.
    assert "&id" not in text
    context = Mock()
    assert metrics_addon.workspace(context, Observability(scraper="everything")) is None
    assert metrics_addon.workspace(context, Observability(scraper="training")) is context.prometheus


def told(**settings: Any) -> list[str]:
    (job,) = [one for one in render("nanogpt", config("eks-gpu", **settings)) if one["kind"] == "PyTorchJob"]
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    return [one["name"] for one in (*container["env"], *container.get("ports", ()))]


def test_trainers_answer_only_where_somebody_reads_them() -> None:
    names = {"HYPERPOD_TRAINING_REPORTS", "HYPERPOD_TRAINING_PORT", "hyperpod-metric"}
    assert names <= set(told(observability=ON))
    assert not names & set(told(observability={"prometheus": "create"}))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "more often": ({"global": {"scrape_interval": "15s"}}, "at least 30 seconds"),
    "a job more often": ({"scrape_configs": [{"job_name": "x", "scrape_interval": "20s"}]}, "at least 30 seconds"),
    "rules": ({"rule_files": ["x"]}, "global, scrape_configs alone"),
    "nothing": ({"scrape_configs": []}, "global, scrape_configs alone"),
    "a file": ({"scrape_configs": [{"job_name": "x", "file_sd_configs": []}]}, "file_sd_configs is not supported"),
    "a token": (
        {"scrape_configs": [{"job_name": "x", "authorization": {"credentials_file": "/etc/token"}}]},
        "the only credentials",
    ),
}


TRUST = '{"Version": "2012-10-17", "Statement": []}'
TOKEN, WORKSPACE, CLUSTER = "aws:amp/scraper:Scraper", "aws:amp/workspace:Workspace", "aws:eks/cluster:Cluster"


@pytest.fixture
def ready() -> Iterator[tuple[Account, dict[str, Any], list[str]]]:
    """An account with a cluster, what its collector is made of, and subnets."""
    with Account("us-west-2") as account:
        vpc, _ = account.create("aws:ec2/vpc:Vpc", "vpc", {"cidrBlock": "10.0.0.0/16"})
        places = [{"vpcId": vpc, "cidrBlock": block, "availabilityZoneId": zone} for block, zone in SUBNETS]
        subnets = [account.create("aws:ec2/subnet:Subnet", place["cidrBlock"], place)[0] for place in places]
        _, role = account.create("aws:iam/role:Role", "eks", {"name": "eks", "assumeRolePolicy": TRUST})
        made = {"name": "demo", "version": "1.34", "accessConfig": {"authenticationMode": "API"}}
        network = {"subnetIds": subnets[:2], "endpointPrivateAccess": True}
        _, cluster = account.create(CLUSTER, "demo", {**made, "roleArn": role["arn"], "vpcConfig": network})
        _, workspace = account.create(WORKSPACE, "demo", {"alias": "demo"})
        eks, amp = {"clusterArn": cluster["arn"], "subnetIds": subnets[:2]}, {"workspaceArn": workspace["arn"]}
        inputs = {
            "source": {"eks": eks},
            "destination": {"amp": amp},
            "scrapeConfiguration": configuration("demo", everything=False),
        }
        yield account, inputs, subnets


def test_aws_refuses_a_collector_that_cannot_work(ready: tuple[Account, dict[str, Any], list[str]]) -> None:
    account, inputs, subnets = ready
    (cluster,) = account.find(CLUSTER)
    for changed, why in BAD.values():
        text = yaml.safe_dump(yaml.safe_load(inputs["scrapeConfiguration"]) | changed)
        with pytest.raises(Refused, match=why):
            account.create(TOKEN, "bad", {**inputs, "scrapeConfiguration": text})
    one_zone = {"eks": {**inputs["source"]["eks"], "subnetIds": subnets[1:]}}
    with pytest.raises(Refused, match="two availability zones"):
        account.create(TOKEN, "bad", {**inputs, "source": one_zone})
    cluster.inputs["vpcConfig"]["endpointPrivateAccess"] = False
    with pytest.raises(Refused, match="private access"):
        account.create(TOKEN, "bad", inputs)
    cluster.inputs["vpcConfig"]["endpointPrivateAccess"] = True
    cluster.inputs["accessConfig"]["authenticationMode"] = "CONFIG_MAP"
    with pytest.raises(Refused, match="access entries"):
        account.create(TOKEN, "bad", inputs)


def test_a_region_has_ten_and_a_customer_key_needs_roles(ready: tuple[Account, dict[str, Any], list[str]]) -> None:
    account, inputs, _ = ready
    for number in range(10):
        account.create(TOKEN, f"good-{number}", inputs)
    with pytest.raises(Refused, match="prometheus scrapers"):
        account.create(TOKEN, "one more", inputs)
    (workspace,) = account.find(WORKSPACE)
    workspace.inputs["kmsKeyArn"] = "arn:aws:kms:us-west-2:123456789012:key/x"
    account.quotas = {"prometheus-scrapers": 20}
    with pytest.raises(Refused, match="role configuration"):
        account.create(TOKEN, "encrypted", inputs)

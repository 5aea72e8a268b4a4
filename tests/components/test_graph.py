"""What the program registers: parents, dependencies and inputs, over variants, sizes and options."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from components.common.context import Context
from components.kubernetes.addons import POD_ADDONS
from components.network.security_groups import SecurityGroups, SecurityGroupsArgs
from components.network.vpc import Network, NetworkArgs
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.components.mocks import made
from tests.golden.stacks import state_of
from tests.support import METRICS, VARIANTS, config, everything_before, few_files, of_type, one, plan, project

BOTH = ("slurm-gpu", "eks-gpu")
EVERYTHING = ("slurm-closed", "eks-teams")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "size"),
    [
        pytest.param(stack, size, marks=[pytest.mark.slow] if size != "small" else [])
        for stack, size in product(VARIANTS, ("small", "medium", "large"))
    ],
)
def test_every_resource_has_a_component_for_parent_and_a_name_beginning_with_its(stack: str, size: str) -> None:
    state = plan(stack, size=size, observability=METRICS, benchmarks=True).state
    for resource in state.values():
        if not resource.in_account:
            continue
        parent = state[resource.parent]
        assert not parent.custom, f"{resource.name} is not in a component"
        assert resource.name.startswith(f"{parent.name}-") or parent.type == "eks:index:ServiceRole"


@pytest.mark.parametrize("stack", VARIANTS)
def test_the_cluster_waits_for_what_its_nodes_need_to_boot(stack: str) -> None:
    state = state_of(stack)
    before = everything_before(state, one(state, "hyperpod-cluster"))
    assert {"network-private-nat", "network-s3", "network-nat", "network-private"} <= before
    assert {f"network-{service}" for service in ("ecr-api", "ecr-dkr", "sts", "logs")} <= before
    assert {"lifecycle-on_create.sh", "lifecycle-hyperpod_parameters.json", "lifecycle-policy"} <= before
    assert {
        "identity-worker",
        "security-nodes-egress-self",
        "security-nodes-ingress-self",
    } <= before
    if stack.startswith("eks"):
        assert {"eks-chart-release", "eks-cluster-eksCluster", "eks-access-worker", "eks-api-from-nodes"} <= before


@pytest.mark.parametrize("stack", EVERYTHING)
def test_the_cluster_does_not_wait_for_what_it_can_do_without(stack: str) -> None:
    state = state_of(stack)
    before = everything_before(state, one(state, "hyperpod-cluster"))
    late = {
        "storage-lustre",
        "observability-grafana",
        "observability-rules",
        *(f"identity-{kind}-metrics" for kind in ("controller", "login", "worker")),
        *(f"eks-addons-{addon}" for addon in POD_ADDONS),
    }
    assert not before & late
    assert not any(name.startswith("validation-") for name in before)


@pytest.mark.parametrize("stack", VARIANTS)
def test_names_on_aws_fit_and_the_bucket_begins_as_hyperpod_demands(stack: str) -> None:
    state = state_of(stack)
    bucket = one(state, "lifecycle-bucket").inputs["bucket"]
    assert bucket.startswith("sagemaker-")
    assert len(bucket) <= 63
    assert all(len(role.inputs["name"]) <= 64 for role in of_type(state, "iam/role:Role"))


@pytest.mark.parametrize("stack", VARIANTS)
def test_the_bucket_is_private_encrypted_versioned_tls_only_and_emptied_on_destroy(stack: str) -> None:
    state = state_of(stack)
    assert one(state, "lifecycle-bucket").inputs["forceDestroy"] is True
    closed = one(state, "lifecycle-private").inputs
    assert all(
        closed[key] for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    )
    assert one(state, "lifecycle-versions").inputs["versioningConfiguration"]["status"] == "Enabled"
    assert one(state, "lifecycle-encryption").inputs["rules"]
    denied = {s["Sid"]: s for s in json.loads(one(state, "lifecycle-policy").inputs["policy"])["Statement"]}
    assert denied["TlsOnly"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert "s3:PutObject*" in denied["NodesReadOnly"]["Action"]


@pytest.mark.parametrize("stack", VARIANTS)
def test_nodes_cannot_write_their_own_lifecycle_scripts(stack: str) -> None:
    for policy in of_type(state_of(stack), "iam/rolePolicy:RolePolicy"):
        if policy.name.startswith("identity-"):
            actions = [a for s in json.loads(policy.inputs["policy"])["Statement"] for a in s["Action"]]
            assert not [a for a in actions if a.startswith("s3:") and a not in ("s3:GetObject", "s3:ListBucket")]
            assert "ssm:PutParameter" not in actions


def test_slurm_nodes_get_no_kubernetes_permissions() -> None:
    state = state_of("slurm-gpu")
    assert not [p for p in of_type(state, "RolePolicyAttachment") if "CNI" in p.inputs["policyArn"]]
    assert not [p for p in of_type(state, "iam/rolePolicy:RolePolicy") if "ecr:" in str(p.inputs["policy"])]


@pytest.mark.parametrize("stack", BOTH)
def test_nodes_talk_freely_among_themselves_and_only_https_and_http_to_the_outside(stack: str) -> None:
    state = state_of(stack)
    for direction in ("ingress", "egress"):
        rule = one(state, f"security-nodes-{direction}-self").inputs
        assert rule["ipProtocol"] == "-1"
        assert "cidrIpv4" not in rule
    outside = [r.inputs for r in of_type(state, "Rule") if r.inputs.get("cidrIpv4") == "0.0.0.0/0"]
    assert sorted(rule["fromPort"] for rule in outside) == [80, 443]
    assert not [r for r in of_type(state, "SecurityGroupIngressRule") if r.inputs.get("cidrIpv4") == "0.0.0.0/0"]


def test_all_ports_of_the_outside_are_open_only_where_configured() -> None:
    chosen = config("dev", network={"egress": "open-all"})
    keys, fsx = chosen.settings.network, chosen.settings.fsx

    def groups(context: Context) -> SecurityGroups:
        network = Network("network", NetworkArgs(context=context, network=keys))
        args = SecurityGroupsArgs(context=context, network=network, keys=keys, fsx=fsx)
        return SecurityGroups("security", args)

    found = made(chosen, groups)
    outside = {name: rule for name, rule in found.items() if rule.get("cidrIpv4") == "0.0.0.0/0"}
    assert {name: rule["ipProtocol"] for name, rule in outside.items()} == {"security-nodes-egress-all": "-1"}
    assert found["security-nodes-egress-self"]["ipProtocol"] == "-1"


def test_a_closed_network_has_no_way_out_and_every_endpoint() -> None:
    state = state_of("slurm-closed")
    assert not of_type(state, "NatGateway") + of_type(state, "InternetGateway") + of_type(state, "ec2/eip:Eip")
    services = {e.inputs["serviceName"].split("us-west-2.")[1] for e in of_type(state, "VpcEndpoint")}
    assert {"s3", "ec2", "fsx", "ssm", "ssmmessages", "sagemaker.api", "sts", "logs", "ecr.api", "ecr.dkr"} <= services
    assert not [r for r in of_type(state, "Rule") if r.inputs.get("cidrIpv4") == "0.0.0.0/0"]


def test_an_existing_network_and_role_are_used_as_they_are() -> None:
    state = state_of("slurm-existing")
    assert not [r for r in state.values() if r.type.startswith("aws:ec2")]
    assert {r.name for r in of_type(state, "iam/role:Role")} == {"mlflow-app", "mlflow-job"}
    cluster = one(state, "hyperpod-cluster").inputs
    assert cluster["vpcConfig"] == {
        "securityGroupIds": ["sg-0123456789abcdef0"],
        "subnets": ["subnet-0123456789abcdef0"],
    }
    assert {g["executionRole"] for g in cluster["instanceGroups"]} == {"arn:aws:iam::123456789012:role/team/hyperpod"}


def test_the_file_system_is_found_by_the_stacks_own_id() -> None:
    state = state_of("dev")
    tag = one(state, "storage-lustre").inputs["tags"]["hyperpod:cluster-id"]
    parameters = json.loads(one(state, "lifecycle-hyperpod_parameters.json").inputs["source"].text)
    assert parameters["cluster_id"] == tag
    other = one(state_of("slurm-gpu"), "storage-lustre").inputs["tags"]["hyperpod:cluster-id"]
    assert tag != other


def test_protect_covers_cluster_and_data_and_retain_covers_the_file_system() -> None:
    state = state_of("slurm-existing")
    assert {r.name for r in state.values() if r.protect} == {
        "hyperpod-cluster",
        "storage-lustre",
        "accounting-database",
        "mlflow-app",
        "mlflow-files",
    }
    assert {r.name for r in state.values() if r.retain} == {"storage-lustre"}
    assert not [r for r in state_of("dev").values() if r.protect or r.retain]


def test_user_tags_reach_every_resource_through_the_providers_and_the_cluster() -> None:
    state = state_of("slurm-closed")
    defaults = json.loads(one(state, "aws", "providers:aws").inputs["defaultTags"])["tags"]
    assert defaults["team"] == "research"
    cluster = {t["key"]: t["value"] for t in one(state, "hyperpod-cluster").inputs["tags"]}
    assert cluster["team"] == "research"
    taggable = [resource for resource in state.values() if "tagsAll" in resource.inputs]
    assert len(taggable) > 30
    # An object takes ten.
    untagged = {r.type.rsplit(":", 1)[1] for r in taggable if r.inputs["tagsAll"].get("team") != "research"}
    assert untagged == {"BucketObjectv2"}
    assert not [r.name for r in of_type(state, "BucketObjectv2") if r.inputs["tagsAll"]]


def test_no_other_account_s_rule_writes_to_the_log() -> None:
    """EventBridge has one principal for all accounts, and names the rule when it writes."""
    state = state_of("dev")
    rule = one(state, "validation-events", "EventRule").outputs["arn"]
    policy = json.loads(one(state, "validation-events", "LogResourcePolicy").inputs["policyDocument"])
    (writing,) = [s for s in policy["Statement"] if "logs:PutLogEvents" in s["Action"]]
    assert writing["Condition"] == {"ArnEquals": {"aws:SourceArn": rule}}
    others = [action for s in policy["Statement"] if s is not writing for action in s["Action"]]
    assert others == ["logs:CreateLogStream"]


def _is_litter(path: Path) -> bool:
    return any(part == "__pycache__" or part[0] == "." for part in path.parts)


def test_every_lifecycle_file_is_shipped_and_no_leftover_of_an_editor() -> None:
    folder = Path(__file__).parents[2] / "lifecycle"
    files = {
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_file() and not _is_litter(p.relative_to(folder))
    }
    keys = {r.inputs["key"].removeprefix("lifecycle/") for r in of_type(state_of("dev"), "BucketObjectv2")}
    assert keys == files | {"hyperpod_parameters.json"}


def test_a_cluster_that_aws_failed_to_make_stops_every_update_with_the_way_out() -> None:
    state = dict(state_of("dev"))
    cluster = one(state, "hyperpod-cluster")
    state[cluster.urn] = replace(cluster, outputs={**cluster.outputs, "clusterStatus": "Failed"})
    with few_files():
        failed = up(project("dev"), Account("us-west-2"), old=state, preview=True).failure
    for way in ("hyperpod deploy dev --lose hyperpod-cluster", f"--target-dependents --target '{cluster.urn}'"):
        assert way in failed

"""``nodes``: which node is meant, and what SageMaker and the scheduler say of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from operations.cluster import nodes
from operations.failures import Exit, Failure
from tests.operations.aws import (
    CLUSTER_ID,
    LOGICAL,
    NODES,
    TO_COME,
    FakeKubernetes,
    StubbedAws,
    cluster,
    command,
    ended,
    node,
    run,
    run_json,
    stack,
    with_nodes,
    with_session,
)

SINFO = 'printf "ip-10-1-1-1|idle|none\\nip-10-1-1-2|down*|Node unexpectedly rebooted\\n"'


def test_nodes_come_from_every_page_in_the_configurations_order(aws: StubbedAws) -> None:
    with_nodes(aws, node("workers", 2), node("workers", 1), node("controller", 1), pages=3)
    found = nodes.list_nodes(stack(aws))
    assert [one.name for one in found] == ["controller-1", "workers-1", "workers-2"]
    assert [one.ip for one in found] == ["10.1.0.1", "10.1.1.1", "10.1.1.2"]
    aws.assert_all_asked()


def test_a_node_that_was_replaced_is_the_last_of_its_group_and_groups_keep_their_order(aws: StubbedAws) -> None:
    launched = (("controller", 1, "10:09"), ("workers", 1, "10:05"), ("workers", 2, "10:02"))
    with_nodes(aws, *(node(group, n) | {"LaunchTime": f"2026-11-20T{at}:00Z"} for group, n, at in launched))
    found = {one.name: one.instance_id for one in nodes.list_nodes(stack(aws))}
    assert list(found.items()) == [
        ("controller-1", "i-controller1"),
        ("workers-1", "i-workers2"),
        ("workers-2", "i-workers1"),
    ]


def test_a_controller_that_does_not_run_is_not_asked(aws: StubbedAws) -> None:
    with_nodes(aws, node("controller", 1, "Pending"), node("workers", 1))
    with pytest.raises(Failure, match="the Slurm controller is not running"):
        nodes.controller(nodes.list_nodes(stack(aws)))


def test_a_cluster_without_nodes_yet_is_an_empty_list(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster("Creating"))
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": []})
    out, _ = ended(Exit.GOOD, "node", "list", "dev")
    assert "Creating, 0 nodes" in out


@pytest.mark.parametrize("wanted", ["workers-2", "i-workers2", "ip-10-1-1-2", "10.1.1.2"])
def test_a_node_is_found_by_every_name_it_has(wanted: str, aws: StubbedAws) -> None:
    with_nodes(aws)
    assert nodes.find(nodes.list_nodes(stack(aws)), wanted).instance_id == "i-workers2"


def test_a_group_means_its_first_node_and_a_typo_is_named(aws: StubbedAws) -> None:
    with_nodes(aws)
    found = nodes.list_nodes(stack(aws))
    assert nodes.find(found, "workers").name == "workers-1"
    with pytest.raises(Failure, match='no node "worker-1"') as refused:
        nodes.find(found, "worker-1")
    assert refused.value.code == Exit.BAD_INPUT
    assert "workers-1" in refused.value.hint


@pytest.mark.parametrize("wanted", ["", " "])
def test_an_empty_name_is_no_node_that_has_no_address_yet(wanted: str, aws: StubbedAws) -> None:
    pending = node("workers", 1, "Pending")
    del pending["PrivateDnsHostname"]
    with_nodes(aws, pending)
    with pytest.raises(Failure, match="NODE is empty") as refused:
        nodes.find(nodes.list_nodes(stack(aws)), wanted)
    assert refused.value.code == Exit.BAD_INPUT


def test_people_are_taken_to_the_login_node_else_the_controller_else_a_worker(aws: StubbedAws) -> None:
    with_nodes(aws, node("controller", 1, "Pending"), node("workers", 1))
    assert nodes.head(nodes.list_nodes(stack(aws))).name == "workers-1"
    with_nodes(aws)
    assert nodes.head(nodes.list_nodes(stack(aws))).name == "controller-1"
    with_nodes(aws, *NODES, node("login", 1))
    login = 'hyperpod:login={"instanceType": "ml.m5.large"}'
    assert nodes.head(nodes.list_nodes(stack(aws, "dev", login))).name == "login-1"
    with_nodes(aws, node("controller", 1, "Failure", "script failed"))
    with pytest.raises(Failure, match="controller-1 Failure"):
        nodes.head(nodes.list_nodes(stack(aws)))


def test_slurms_state_stands_beside_sagemakers(aws: StubbedAws, plugin: Path) -> None:
    command(plugin, "sinfo", SINFO)
    with_nodes(aws)
    with_session(aws, Target=f"sagemaker-cluster:{CLUSTER_ID}_controller-i-controller1")
    out, _ = ended(Exit.GOOD, "node", "list", "dev")
    assert "down*" in out
    assert "workers-2: Node unexpectedly rebooted" in out
    assert max(map(len, out.splitlines())) <= 100


def test_nodes_are_listed_even_where_slurm_cannot_be_asked(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    aws.refuse("ssm", "start_session", "AccessDeniedException", "not authorized to perform: ssm:StartSession")
    out, err = ended(Exit.GOOD, "node", "list", "dev")
    assert "workers-2" in out
    assert "state unknown: permission denied" in err
    assert "allow this principal ssm:StartSession" in err


def test_nodes_that_are_still_to_come_are_counted_and_listed_by_their_logical_ids(aws: StubbedAws) -> None:
    groups = (("controller", "ml.m5.2xlarge", 1), ("workers", "ml.g5.16xlarge", 16))
    aws.answer("sagemaker", "describe_cluster", cluster(groups=groups))
    listed = {"ClusterNodeSummaries": [NODES[0], TO_COME, *NODES[1:]]}
    aws.answer("sagemaker", "list_cluster_nodes", listed, IncludeNodeLogicalIds=True)
    out, _ = ended(Exit.GOOD, "node", "list", "dev", "--no-state")
    assert "nodes of workers that have no instance yet: 14 " in out
    names = [line.split()[0] for line in out.splitlines()[2:6]]
    assert names == ["controller-1", "workers-1", "workers-2", LOGICAL]


def test_without_states_no_session_is_opened(aws: StubbedAws) -> None:
    with_nodes(aws)
    code, document = run_json("node", "list", "dev", "--no-state")
    assert (code, len(document)) == (Exit.GOOD, 3)


KUBERNETES_NODES = [
    {
        "metadata": {"name": "hyperpod-i-workers1"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    {
        "metadata": {"name": "hyperpod-i-workers2"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "False", "message": "kubelet stopped"}]},
    },
]
EKS_CLUSTER = {
    "cluster": {
        "name": "eks-gpu",
        "arn": "arn:aws:eks:us-west-2:123456789012:cluster/eks-gpu",
        "endpoint": "https://example",
        "certificateAuthority": {"data": "Y2E="},
    }
}


def test_kubernetes_state_stands_beside_sagemakers(aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]) -> None:
    kubernetes(nodes=KUBERNETES_NODES)
    with_nodes_of_eks(aws)
    target = stack(aws, "eks-gpu")
    found = nodes.with_states(target, nodes.list_nodes(target))
    assert [(one.state, one.reason) for one in found] == [
        ("Ready", ""),
        ("NotReady,SchedulingDisabled", "kubelet stopped"),
    ]


def test_a_node_that_waits_for_hyperpods_patch_says_so(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    patched = {
        "metadata": {"name": "hyperpod-i-workers1", "labels": {"sagemaker.amazonaws.com/cordoned-by": "AutoPatching"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    kubernetes(nodes=[patched])
    with_nodes_of_eks(aws)
    target = stack(aws, "eks-gpu")
    first = nodes.with_states(target, nodes.list_nodes(target))[0]
    assert first.state == "Ready,SchedulingDisabled"
    assert first.reason == "HyperPod patches its image once it is idle, or uncordons it within a day"


def drawn_network(stack: str) -> list[str]:
    """What is drawn of a network, below the cluster's name and without its lines."""
    out, _ = ended(Exit.GOOD, "node", "list", stack, "--topology")
    assert max(map(len, out.splitlines())) <= 80
    return [line.lstrip("│├└─ ") for line in out.splitlines()[1:]]


def test_eks_nodes_are_drawn_in_the_network_of_their_labels(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    layers = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)}
    partly = {label: name for label, name in layers.items() if not label.endswith("3")}
    given = [{"metadata": {"name": f"hyperpod-i-workers{n}", "labels": of}} for n, of in ((1, layers), (2, partly))]
    kubernetes(nodes=given)
    with_nodes_of_eks(aws)
    with_nodes_of_eks(aws)
    lack = "workers-2: these lack HyperPod's labels of the network"
    lines = drawn_network("eks-gpu")
    assert lines == ["nn-1  1 node", "nn-2  1 node", "nn-3  1 node", "workers-1", lack]
    _, document = run_json("node", "list", "eks-gpu", "--topology")
    leaf = {"name": "nn-3", "below": [], "nodes": ["workers-1"]}
    middle = {"name": "nn-2", "below": [leaf], "nodes": []}
    assert document == {"tree": [{"name": "nn-1", "below": [middle], "nodes": []}], "unplaced": ["workers-2"]}


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (
            "SwitchName=nn-1 Level=0 LinkSpeed=1 Nodes=ip-10-1-1-[1-2]\n"
            "SwitchName=nn-top Level=1 LinkSpeed=1 Nodes=ip-10-1-1-[1-2] Switches=nn-1\n",
            ["nn-top  2 nodes", "nn-1  2 nodes", "workers-1 workers-2"],
        ),
        ("BlockName=us-1 BlockIndex=0 Nodes=ip-10-1-1-[1-2] BlockSize=18\n", ["us-1  2 nodes", "workers-1 workers-2"]),
        ("", ["workers-1, workers-2: these are not in Slurm's map of the network"]),
    ],
    ids=["tree", "blocks", "no map"],
)
def test_slurms_nodes_are_drawn_in_its_map(shown: str, wanted: list[str], aws: StubbedAws, plugin: Path) -> None:
    command(plugin, "scontrol", f"printf '{shown.encode('unicode_escape').decode()}'")
    with_nodes(aws)
    with_session(aws, Target=f"sagemaker-cluster:{CLUSTER_ID}_controller-i-controller1")
    assert drawn_network("dev") == wanted


def test_the_network_needs_the_scheduler_and_is_drawn_once() -> None:
    _, err = ended(Exit.BAD_INPUT, "node", "list", "dev", "--topology", "--no-state", "--watch")
    assert "--topology does not go with --no-state and --watch" in err


def with_nodes_of_eks(aws: StubbedAws) -> None:
    """Two workers of the stack eks-gpu."""
    aws.answer("sagemaker", "describe_cluster", cluster(groups=(("workers", "ml.p5.48xlarge", 2),)))
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("workers", 1), node("workers", 2)]})


def test_a_kubeconfig_contains_no_secret_and_is_readable_only_by_its_owner(aws: StubbedAws, tmp_path: Path) -> None:
    aws.answer("eks", "describe_cluster", EKS_CLUSTER)
    path = tmp_path / "kube" / "config"
    assert run("kubeconfig", "eks-gpu", "--write", str(path))[0] == Exit.GOOD
    assert path.stat().st_mode & 0o777 == 0o600
    aws.answer("eks", "describe_cluster", EKS_CLUSTER)
    path.write_text("old")
    path.chmod(0o644)
    (tmp_path / "link").symlink_to(path)
    assert run("kubeconfig", "eks-gpu", "--write", str(tmp_path / "link"))[0] == Exit.GOOD
    assert (path.stat().st_mode & 0o777, list(path.parent.iterdir())) == (0o600, [path])
    (user,) = yaml.safe_load(path.read_text())["users"]
    wanted = ["eks", "get-token", "--region", "us-west-2", "--cluster-name", "eks-gpu"]
    assert user["user"]["exec"]["args"] == wanted
    # What the AWS CLI answers with, and kubectl compares (aws eks update-kubeconfig).
    assert user["user"]["exec"]["apiVersion"] == "client.authentication.k8s.io/v1beta1"
    assert "token:" not in path.read_text()
    _, err = ended(Exit.BAD_INPUT, "kubeconfig", "dev")
    assert "Slurm stack" in err

"""``validate``: every check can pass, fail and be impossible to make, and none stops the others."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hyperpod_node.health.kubernetes import SETUP

from components.common.names import CLUSTER_ID_TAG
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.cluster.validate import Check, Validation, _gres, worst
from operations.failures import Exit
from operations.jobs.requests import JobError
from operations.target import Target
from tests.operations.aws import (
    NODES,
    FakeKubernetes,
    StubbedAws,
    cluster,
    command,
    node,
    run_json,
    stack,
    with_nodes,
    with_session,
)
from tests.operations.test_nodes import with_nodes_of_eks

GROUP = "sg-1"
ITSELF = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": GROUP}]}
SINFO = "ip-10-1-1-1|idle|gpu:1(S:0)\nip-10-1-1-2|allocated|gpu:a10g:1\nip-10-1-0-1|idle|(null)\n"
HEALTHY = {
    "hostname": "x",
    "role": "worker",
    "passed": True,
    "checks": [{"name": "boot", "passed": True, "detail": ""}],
}


@dataclass
class World:
    """A healthy cluster; tests break one thing of it."""

    status: str = "InService"
    nodes: tuple[dict[str, Any], ...] = NODES
    subnet: dict[str, Any] = field(default_factory=lambda: {"SubnetId": "subnet-1", "VpcId": "vpc-1"})
    routes: list[dict[str, str]] = field(default_factory=lambda: [{"NatGatewayId": "nat-1"}])
    own_table: bool = True
    inside: dict[str, Any] = field(default_factory=lambda: ITSELF)
    outside: dict[str, Any] = field(default_factory=lambda: ITSELF)
    lifecycle: str = "AVAILABLE"
    sinfo: str = SINFO
    sinfo_code: int = 0
    on_node: dict[str, Any] = field(default_factory=lambda: HEALTHY)

    def put_nodes(self, aws: StubbedAws, plugin: Path) -> None:
        """What the nodes answer through Session Manager."""
        command(plugin, "sinfo", f"cat <<'END'\n{self.sinfo}END\nexit {self.sinfo_code}")
        command(plugin, "hyperpod-validate", f"cat <<'END'\n{json.dumps(self.on_node, indent=2)}\nEND")
        for _ in range(4):
            with_session(aws)

    def put(self, aws: StubbedAws) -> None:
        """Answer every question of the checks to AWS, in their order."""
        target = stack(aws)
        aws.answer("sagemaker", "describe_cluster", cluster(self.status))
        for page in range(3):
            more = {"NextToken": f"p{page + 1}"} if page < 2 else {}
            part = {"ClusterNodeSummaries": [*self.nodes][page : page + 1], **more}
            aws.answer("sagemaker", "list_cluster_nodes", part)
        aws.answer("ec2", "describe_subnets", {"Subnets": [self.subnet]})
        if not self.own_table:
            aws.answer("ec2", "describe_route_tables", {"RouteTables": []})
        aws.answer("ec2", "describe_route_tables", {"RouteTables": [{"Routes": self.routes}]})
        groups = [{"GroupId": GROUP, "IpPermissions": [self.inside], "IpPermissionsEgress": [self.outside]}]
        aws.answer("ec2", "describe_security_groups", {"SecurityGroups": groups})
        tags = [{"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}]
        systems = [{"FileSystemId": "fs-12345678", "Lifecycle": self.lifecycle, "Tags": tags}]
        aws.answer("fsx", "describe_file_systems", {"FileSystems": systems})


def broken(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, world: World) -> dict[str, str]:
    """The checks that do not pass, with what they say. Sessions are the tests' of `exec`; here are none."""

    def run_remote(target: Target, node: Node, line: str, timeout: float) -> Remote:
        if line.startswith("sinfo"):
            return Remote(code=world.sinfo_code, output=world.sinfo)
        return Remote(code=0, output=json.dumps(world.on_node))

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    world.put(aws)
    return {f"{c.result} {c.name}": c.detail for c in Validation(stack(aws)).run() if c.result != "PASS"}


def test_a_healthy_cluster_passes_every_check(aws: StubbedAws, plugin: Path) -> None:
    World().put(aws)
    World().put_nodes(aws, plugin)
    code, checks = run_json("validate", "dev")
    assert [c for c in checks if c["result"] != "PASS"] == []
    assert code == Exit.GOOD
    names = {c["name"] for c in checks}
    assert {
        "cluster in service", "worker nodes of workers", "controller nodes of controller", "subnet subnet-1 private",
        "nodes to nodes, in", "nodes to nodes, out", "FSx for Lustre", "Slurm sees workers-1", "workers-2",
    } <= names  # fmt: skip
    aws.assert_all_asked()


PUBLIC = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "MapPublicIpOnLaunch": True}
ONE_DOWN = (node("controller", 1), node("workers", 1), node("workers", 2, "Failure", "EFA"))
OTHERS = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-others"}]}
ANYBODY = {"IpProtocol": "-1", "UserIdGroupPairs": [], "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
SICK = {
    "passed": False,
    "checks": [
        {"name": "shared file system", "passed": False, "detail": "/fsx is read-only"},
        {"name": "transport", "passed": True, "detail": ""},
    ],
}


@pytest.mark.parametrize(
    ("world", "check", "detail"),
    [
        (World(status="Failed"), "FAIL cluster in service", "Failed"),
        (World(nodes=ONE_DOWN), "FAIL worker nodes of workers", "1 of 2 running; workers-2 Failure"),
        (World(nodes=NODES[:2]), "FAIL worker nodes of workers", "1 of 2 running"),
        (World(subnet=PUBLIC), "FAIL subnet subnet-1 private", "addresses given at launch"),
        (World(routes=[{"GatewayId": "igw-1"}]), "FAIL subnet subnet-1 private", "a route to an internet gateway"),
        (World(own_table=False, routes=[{"GatewayId": "igw-1"}]), "FAIL subnet subnet-1 private", "a route to an"),
        (World(inside=ANYBODY), "FAIL nodes to nodes, in", "none of sg-1 allows itself"),
        (World(outside=ANYBODY), "FAIL nodes to nodes, out", "none of sg-1 allows itself"),
        (World(inside=OTHERS), "FAIL nodes to nodes, in", "none of sg-1 allows itself"),
        (World(inside=ITSELF | {"IpProtocol": "tcp"}), "FAIL nodes to nodes, in", "none of sg-1 allows itself"),
        (World(nodes=(*NODES[:2], node("old", 1))), "FAIL group old", "the configuration does not have it"),
        (World(lifecycle="CREATING"), "FAIL FSx for Lustre", "fs-12345678 CREATING"),
        (World(sinfo="ip-10-1-1-1|idle|gpu:1\n"), "FAIL Slurm sees workers-2", "not there, 0 of 1 accelerators"),
        (World(sinfo=SINFO.replace("idle", "drained*")), "FAIL Slurm sees workers-1", "drained*, 1 of 1"),
        (World(sinfo=SINFO.replace("idle", "idle*")), "FAIL Slurm sees workers-1", "idle*, 1 of 1"),
        (World(sinfo=SINFO.replace("gpu:1(S:0)", "(null)")), "FAIL Slurm sees workers-1", "idle, 0 of 1 accelerators"),
        (World(sinfo="down\n", sinfo_code=1), "FAIL scheduler", "sinfo ended with 1: down"),
        (World(on_node=SICK), "FAIL workers-1: shared file system", "/fsx is read-only"),
    ],
)
def test_each_fault_fails_its_own_check(
    world: World, check: str, detail: str, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = broken(aws, monkeypatch, world)
    assert detail in found[check]


def test_a_route_whose_gateway_is_gone_leads_nowhere(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"GatewayId": "igw-1", "State": "blackhole"}
    assert broken(aws, monkeypatch, World(routes=[gone])) == {}


def test_a_file_system_that_grows_is_there(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    # FSx API Reference, FileSystem: UPDATING is a customer's own change, while nodes go on using it.
    assert broken(aws, monkeypatch, World(lifecycle="UPDATING")) == {}


@pytest.mark.parametrize(
    ("systems", "result", "detail"),
    [
        ([{"Lifecycle": "AVAILABLE", "VpcId": "vpc-0123456789abcdef0"}], "PASS", "AVAILABLE in vpc-0123456789abcdef0"),
        ([{"Lifecycle": "UPDATING", "VpcId": "vpc-0123456789abcdef0"}], "PASS", "UPDATING in vpc-0123456789abcdef0"),
        ([{"Lifecycle": "AVAILABLE", "VpcId": "vpc-0fedcba9876543210"}], "FAIL", "vpc-0fedcba9876543210"),
        ([{"Lifecycle": "FAILED", "VpcId": "vpc-0123456789abcdef0"}], "FAIL", "FAILED in vpc-0123456789abcdef0"),
        ([], "FAIL", "there is no fs-0123456789abcdef0"),
    ],
)
def test_the_home_file_system_is_there_and_where_the_nodes_reach_it(
    systems: list[dict[str, str]], result: str, detail: str, aws: StubbedAws
) -> None:
    home = "fs-0123456789abcdef0"
    network = {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetId": "subnet-0123456789abcdef0",
        "securityGroupIds": ["sg-0123456789abcdef0"],
    }
    settings = (f"hyperpod:fsx={json.dumps({'homeFileSystemId': home})}", f"hyperpod:network={json.dumps(network)}")
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [{"FileSystemId": home, **one} for one in systems]})
    (check,) = [c for c in Validation(stack(aws, "dev", *settings)).file_system() if c.name == "home file system"]
    assert check.result == result
    assert detail in check.detail


def test_a_node_whose_scripts_never_ran_fails(aws: StubbedAws, plugin: Path) -> None:
    World().put(aws)
    World().put_nodes(aws, plugin)
    command(plugin, "hyperpod-validate", "echo 'hyperpod-validate: no record of this node' >&2; exit 2")
    found = [c for c in Validation(stack(aws)).run() if c.name == "workers-1"]
    assert [(c.result, "no record of this node" in c.detail) for c in found] == [("FAIL", True)]


def test_a_forbidden_query_is_unknown_and_the_rest_continues(aws: StubbedAws, plugin: Path) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.refuse("sagemaker", "list_cluster_nodes", "ThrottlingException")
    for operation in ("describe_subnets", "describe_security_groups"):
        aws.refuse("ec2", operation, "UnauthorizedOperation", "You are not authorized")
    aws.refuse("fsx", "describe_file_systems", "AccessDeniedException")
    for _ in range(2):
        aws.refuse("sagemaker", "list_cluster_nodes", "SomethingNew")
    code, checks = run_json("validate", "dev")
    results = {c["name"]: c["result"] for c in checks}
    assert results["cluster in service"] == "PASS"
    assert {results[n] for n in ("nodes", "subnet", "security groups", "file system")} == {"UNKNOWN"}
    # What AWS refuses for a reason of its own is a failure; that nobody may ask is not.
    assert results["scheduler"] == "FAIL"
    assert code == Exit.FAILED


def kubernetes_node(name: str, ready: str, gpus: int, efa: int, setup: str = "complete") -> dict[str, Any]:
    """One of kubectl's nodes. ``setup``: its label, or what is missing."""
    labels = {SETUP: "complete" if setup == "complete" else "incomplete"} if setup else {}
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": {"nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": str(efa)},
    }
    metadata = {"name": name, "labels": labels, "annotations": {SETUP: setup} if setup else {}}
    return {"metadata": metadata, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("ready", "gpus", "efa", "result"),
    [("True", 8, 32, "PASS"), ("False", 8, 32, "FAIL"), ("True", 7, 32, "FAIL"), ("True", 8, 31, "FAIL")],
)
def test_kubernetes_must_see_every_device_and_interface(
    ready: str, gpus: int, efa: int, result: str, aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    first, second = ("hyperpod-i-workers1", ready, gpus, efa), ("hyperpod-i-workers2", "True", 8, 32)
    kubernetes(nodes=[kubernetes_node(*first), kubernetes_node(*second)])
    with_nodes_of_eks(aws)
    worker, other = Validation(stack(aws, "eks-gpu")).kubernetes()
    state = "Ready" if ready == "True" else "NotReady"
    assert (worker.name, worker.result) == ("Kubernetes sees workers-1", result)
    assert worker.detail == f"{state}, {gpus} of 8 accelerators, {efa} EFA interfaces"
    assert (other.name, other.result) == ("Kubernetes sees workers-2", "PASS")


def test_a_node_must_have_the_interfaces_of_its_own_type(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    several = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "fallbackTypes": ["ml.p5en.48xlarge"]}]
    kubernetes(nodes=[kubernetes_node(f"hyperpod-i-workers{number}", "True", 8, 16) for number in (1, 2)])
    kinds = {1: "ml.p5.48xlarge", 2: "ml.p5en.48xlarge"}
    aws.answer("sagemaker", "describe_cluster", cluster())
    listed = [{**node("workers", number), "InstanceType": kind} for number, kind in kinds.items()]
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": listed})
    found = Validation(stack(aws, "eks-gpu", f"hyperpod:workers={json.dumps(several)}")).kubernetes()
    assert [(one.name, one.result) for one in found] == [
        ("Kubernetes sees workers-1", "FAIL"),
        ("Kubernetes sees workers-2", "PASS"),
    ]


def test_a_node_whose_boot_left_something_undone_fails_with_what_and_with_what_to_do(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    missing = "pod-disk: /opt/sagemaker is instance store: containerd and kubelet stay on the root volume"
    there = ((1, missing), (2, ""))
    kubernetes(nodes=[kubernetes_node(f"hyperpod-i-workers{one}", "True", 8, 32, setup) for one, setup in there])
    with_nodes_of_eks(aws)
    _, undone, _, silent = Validation(stack(aws, "eks-gpu")).kubernetes()
    assert (undone.name, undone.result, undone.detail) == ("set-up of workers-1", "FAIL", missing)
    assert "assumptions eks-gpu --id eks-data-volume; " in undone.hint
    assert "hyperpod node replace eks-gpu workers-1" in undone.hint
    assert (silent.result, silent.hint) == ("UNKNOWN", "hyperpod node health eks-gpu says why")


def test_a_kubernetes_node_without_an_instance_is_named(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    there = [kubernetes_node(f"hyperpod-i-workers{one}", "True", 8, 32) for one in (1, 2)]
    others = [kubernetes_node(name, "False", 8, 32) for name in ("hyperpod-i-gone", "ip-10-0-0-1.ec2.internal")]
    kubernetes(nodes=[*others, *there])
    with_nodes_of_eks(aws)
    *workers, gone = Validation(stack(aws, "eks-gpu")).kubernetes()
    assert [one.result for one in workers] == ["PASS", "PASS"]
    assert (gone.name, gone.result) == ("Kubernetes node hyperpod-i-gone", "FAIL")
    assert gone.detail == "HyperPod has no such instance"
    assert gone.hint.endswith("kubectl delete node hyperpod-i-gone")


@pytest.mark.parametrize(
    ("state", "up"),
    [
        *(
            (good, True)
            for good in ("idle", "mixed", "allocated", "allocated+", "completing", "planned", "mixed-", "reserved")
        ),
        *((bad, False) for bad in ("inval", "reboot^", "boot", "maint", "idle*", "idle~", "mixed#", "idle%", "idle!")),
        *(
            (bad, False)
            for bad in ("down", "drained", "draining", "drng", "fail", "unknown", "blocked", "idle$", "idle@")
        ),
    ],
)
def test_only_a_state_that_takes_jobs_is_up(
    state: str, up: bool, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = broken(aws, monkeypatch, World(sinfo=SINFO.replace("idle", state)))
    assert ("FAIL Slurm sees workers-1" not in found) == up


def in_pods(aws: StubbedAws, **given: bool) -> list[tuple[str, str]]:
    checks = Validation(stack(aws, "eks-gpu"), **given).in_pods()
    return [(one.result, f"{one.detail} {one.hint}") for one in checks]


def test_what_pods_see_is_unknown_until_a_job_has_looked(aws: StubbedAws) -> None:
    ((result, said),) = in_pods(aws)
    assert result == "UNKNOWN"
    assert "hyperpod job run eks-gpu device-check --group workers" in said


@pytest.mark.parametrize(
    ("log", "ends", "result", "said"),
    [
        ("PASS\nPASS", "Succeeded", "PASS", "2 of 2 nodes"),
        ("PASS", "Succeeded", "FAIL", "1 of 2 nodes see"),
        ("w1: /fsx cannot be written to\nFAIL", "Failed", "FAIL", "0 of 2 nodes"),
    ],
)
def test_a_job_tells_what_pods_see_and_is_taken_away_again(
    log: str, ends: str, result: str, said: str, aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes]
) -> None:
    api = kubernetes(log=log)
    api.ends = ends
    ((found, detail),) = in_pods(aws, run_jobs=True)
    assert (found, said in detail) == (result, True), detail
    assert api.there == []
    assert api.did[-1].startswith("delete")


def test_a_stack_that_cannot_have_the_job_is_told_why(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise JobError(["a closed network has no image"])

    kubernetes()
    monkeypatch.setattr("operations.cluster.validate.render", refuse)
    ((result, said),) = in_pods(aws, run_jobs=True)
    assert (result, "a closed network has no image" in said) == ("UNKNOWN", True)


UNPLACED = {"type": "PodScheduled", "status": "False", "message": "Insufficient nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("pods", "result", "said"),
    [
        ([], "UNKNOWN", "no pod yet"),
        ([{"phase": "Pending", "conditions": [UNPLACED]}], "UNKNOWN", "Insufficient nvidia.com/gpu"),
        ([{"phase": "Pending"}], "FAIL", "--keep keeps it"),
        ([{"phase": "Running"}], "FAIL", "--keep keeps it"),
    ],
)
def test_a_job_that_waits_for_busy_nodes_is_unknown_and_the_next_group_is_still_asked(
    pods: list[dict[str, Any]],
    result: str,
    said: str,
    aws: StubbedAws,
    kubernetes: Callable[..., FakeKubernetes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = kubernetes()
    api.ends = None
    found = [{"metadata": {"name": "w", "uid": "1", "labels": {}}, "status": status} for status in pods]
    monkeypatch.setattr(api, "pods", lambda *_: found)
    monkeypatch.setattr("operations.cluster.validate._JOB_SECONDS", 0)
    chosen = stack(aws, "eks-gpu")
    group = chosen.config.worker_groups[0]
    monkeypatch.setitem(chosen.config.__dict__, "worker_groups", (group, group))
    checks = list(Validation(chosen, run_jobs=True).in_pods())
    assert [one.result for one in checks] == [result, result]
    assert all(said in f"{one.detail} {one.hint}" for one in checks)
    assert api.there == []


def test_a_device_check_that_is_already_running_is_left_alone(
    aws: StubbedAws, kubernetes: Callable[..., FakeKubernetes], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = kubernetes(log="PASS\nPASS")
    api.there = ["Job"]
    validation = Validation(stack(aws, "eks-gpu"), run_jobs=True)
    for name in ("cluster", "counts", "subnet", "security_groups", "file_system", "kubernetes"):
        monkeypatch.setattr(validation, name, lambda: iter(()))
    (check,) = validation.run()
    assert (check.result, "already exists" in check.detail) == ("UNKNOWN", True)
    assert api.did == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("gpu:8", 8),
        ("gpu:a100:8(S:0-1)", 8),
        ("neuron:16", 16),
        ("(null)", 0),
        ("gpu:h100:8(S:0-1),nvme:1", 8),
        ("", 0),
    ],
)
def test_generic_resources_are_counted_in_every_spelling(text: str, number: int) -> None:
    assert _gres(text) == number


BROKEN = [{"name": name, "passed": False, "detail": "broken"} for name in ("boot", "transport")]


def test_only_running_nodes_are_queried_and_every_fault_of_one_is_reported(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_remote(target: Target, node: Node, line: str, timeout: float) -> sessions.Remote:
        asked.append(node.name)
        return sessions.Remote(code=0, output=json.dumps({"passed": False, "checks": BROKEN}))

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    with_nodes(aws, node("workers", 1), node("workers", 2, "SystemUpdating"))
    found = list(Validation(stack(aws)).each_node())
    assert asked == ["workers-1"]
    assert [one.name for one in found] == ["workers-1: boot", "workers-1: transport"]


def test_another_stacks_file_system_is_not_taken_for_this_ones(aws: StubbedAws) -> None:
    theirs = {
        "FileSystemId": "fs-0fedcba987654321",
        "Lifecycle": "AVAILABLE",
        "Tags": [{"Key": CLUSTER_ID_TAG, "Value": "theirs"}],
    }
    aws.answer("fsx", "describe_file_systems", {"FileSystems": [theirs]})
    (found,) = Validation(stack(aws)).file_system()
    assert (found.result, "fs-0fed" in found.detail) == ("FAIL", False)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (("PASS", "PASS"), Exit.GOOD),
        (("PASS", "UNKNOWN"), Exit.CANNOT_KNOW),
        (("FAIL", "UNKNOWN"), Exit.FAILED),
    ],
)
def test_what_could_not_be_asked_is_not_taken_for_good(results: tuple[Any, ...], code: Exit) -> None:
    assert worst([Check(name="x", result=result, detail="") for result in results]) == code


def pods_see(aws: StubbedAws, *settings: str) -> list[Check]:
    return list(Validation(stack(aws, "eks-gpu", *settings), run_jobs=True).in_pods())


def test_a_group_without_nodes_has_no_pods_to_look_from(aws: StubbedAws) -> None:
    system = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3}
    workers = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 0}, system]
    assert pods_see(aws, f"hyperpod:workers={json.dumps(workers)}") == []


class Slow(FakeKubernetes):
    """A job of this one is there a while after it was deleted, as its pods end."""

    def __init__(self) -> None:
        super().__init__(log="PASS\nPASS")
        self.applied: list[Any] = []
        self.going = 0

    def apply(self, document: Any, *, dry_run: bool = False) -> None:
        assert dry_run or not self.going, "the job before is not gone yet"
        self.applied.append(document)
        super().apply(document, dry_run=dry_run)

    def delete(self, document: Any) -> None:
        super().delete(document)
        self.going = 3

    def get(self, document: Any) -> Any:
        if document["kind"] != "Namespace" and self.going:
            self.going -= 1
            return document
        return super().get(document)


def test_every_groups_job_begins_once_the_one_before_is_gone(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Slow()
    monkeypatch.setattr("operations.cluster.nodes.kubernetes", lambda target: api)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    groups = [{"name": name, "instanceType": "ml.p5.48xlarge", "count": 2} for name in ("one", "two")]
    found = pods_see(aws, f"hyperpod:workers={json.dumps(groups)}")
    assert [(one.name, one.result) for one in found] == [
        ("device-check on one", "PASS"),
        ("device-check on two", "PASS"),
    ]
    # Kubernetes ends it later than validate does: else a job that only waited for nodes would read as a failure.
    assert {one["spec"]["activeDeadlineSeconds"] for one in api.applied if one["kind"] == "Job"} == {960}

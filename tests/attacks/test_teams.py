"""What a member of one team tries against the others, on a real API server with the stack's objects and real Kueue."""

import copy
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from components.config import parse
from components.kubernetes.access import team_group
from components.kubernetes.teams.queues import LOCAL_QUEUE, PRIORITY_LABEL, QUEUE_LABEL
from operations.jobs.pull import daemon_set
from operations.project.loading import load_project
from rehearsal.kubernetes import placement
from rehearsal.kubernetes.binaries import find_all, missing
from rehearsal.kubernetes.charts import Charts
from rehearsal.kubernetes.container import available
from rehearsal.kubernetes.control_plane import ControlPlane
from rehearsal.kubernetes.declared import Declared, declare
from rehearsal.kubernetes.deploy import Deployer
from rehearsal.kubernetes.kubectl import Kubectl, Manifest, Refused
from rehearsal.kubernetes.nodes import GROUP_LABEL, names_of, nodes_of
from rehearsal.kubernetes.run import Run, played, scheduled
from rehearsal.kubernetes.workloads import submitted
from rehearsal.patience import until

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("teams"),  # one control plane for all of them
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()) or not available(), reason="`make kubernetes-tools` was not run here"),
]
ATTACKER, VICTIM = "vision", "speech"
GPUS = {"nvidia.com/gpu": "8"}
EVERYWHERE = [{"operator": "Exists"}]
METADATA = "169.254.169.254"
# Of the manifests here (operations/jobs/render.py), and of torch.distributed.run by default.
RENDEZVOUS = {23456, 29400}
# Long enough for a controller to make a pod, and for the scheduler to preempt for it.
STILL = 5.0


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    teams = f'hyperpod:teams=[{{"name": "{ATTACKER}"}}, {{"name": "{VICTIM}"}}]'
    project = load_project(ROOT, "eks-gpu", [teams])
    config = parse(project.config)
    with ControlPlane(find_all(Console(quiet=True))) as plane, played(plane) as pods:
        stack = Declared(plane, config, declare(project, config), Deployer(plane.kubectl, Charts(plane.folder)))
        here = Run(plane, config, pods, stack)
        assert until(here.settled, 60)
        stack.bring_up()
        # What is still refused then is refused by a rule, and a rule is in force some time after it is there.
        assert until(lambda: refusal(here.kubectl, pod({"nodeName": "anywhere"})), 60), "no rule is in force"
        placement.device_plugins(here)
        yield here


@pytest.fixture(scope="module")
def member(run: Run) -> Kubectl:
    """kubectl of a member of the attacker's team."""
    certificate, key = run.plane.client("mallory", team_group(ATTACKER))
    credentials = {"client-certificate": str(certificate), "client-key": str(key)}
    return Kubectl(run.plane.binaries, run.plane.kubeconfig("mallory", credentials))


def refusal(who: Kubectl, document: Manifest) -> str:
    """Why the API server refuses an object of somebody, or empty if it would take it."""
    try:
        who.apply([document], dry_run=True)
    except Refused as refused:
        return str(refused)
    return ""


def spec_of(more: Manifest | None = None, resources: Manifest | None = None) -> Manifest:
    limits = {"cpu": "100m", "memory": "128Mi", **(resources or {})}
    container = {"name": "main", "image": "attack.invalid/1", "resources": {"requests": limits, "limits": limits}}
    return {"restartPolicy": "Never", "containers": [container], **(more or {})}


def pod(more: Manifest | None = None, resources: Manifest | None = None) -> Manifest:
    metadata = {"name": "attack", "namespace": ATTACKER}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec_of(more, resources)}


def job(more: Manifest | None = None, resources: Manifest | None = None, *, queued: bool = True) -> Manifest:
    labels = {QUEUE_LABEL: LOCAL_QUEUE} if queued else {}
    template = {"metadata": {"labels": {"app": "attack"}}, "spec": spec_of(more, resources)}
    metadata = {"name": "attack", "namespace": ATTACKER, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def deployment(resources: Manifest) -> Manifest:
    template = {
        "metadata": {"labels": {"app": "attack"}},
        "spec": {**spec_of({}, resources), "restartPolicy": "Always"},
    }
    spec = {"selector": {"matchLabels": {"app": "attack"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "attack", "namespace": ATTACKER},
        "spec": spec,
    }


def kubeflow(kind: str, version: str, replicas: str) -> Manifest:
    """A job of an operator, as a team writes it, without a queue."""
    container = {"name": "pytorch", "image": "attack.invalid/1", "resources": {"limits": GPUS}}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": "attack", "namespace": ATTACKER}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {replicas: {"Worker": worker}}}


def pods_of(run: Run) -> list[Manifest]:
    return run.kubectl.list("pods", namespace=ATTACKER, selector="app=attack")


def comes_to_nothing(run: Run, who: Kubectl, document: Manifest) -> str:
    """What the controller was told that wanted to make the pods of something that the API server took; no pod came."""
    who.apply([document])
    try:

        def refused() -> bool:
            reasons[:] = [
                one["message"]
                for one in run.kubectl.list("events", namespace=ATTACKER)
                if one["reason"] == "FailedCreate"
            ]
            return bool(reasons)

        reasons: list[str] = []
        assert until(refused, 30), f"nothing was refused, pods: {len(pods_of(run))}"
        assert pods_of(run) == []
        return reasons[-1]
    finally:
        run.kubectl.delete([document])
        run.kubectl.run("delete", "events", "--all", "-n", ATTACKER)


@pytest.mark.parametrize("priority", ["system-node-critical", "system-cluster-critical"])
def test_nobody_preempts_another_teams_running_pods_by_a_priority_of_the_systems(
    run: Run, member: Kubectl, priority: str
) -> None:
    with submitted(run, "nanogpt", namespace=VICTIM) as victim:
        assert until(victim.placed, 60), victim.reason()
        before = {one["metadata"]["uid"] for one in victim.pods()}
        attack = pod({"priorityClassName": priority, "tolerations": EVERYWHERE}, GPUS)
        try:
            with pytest.raises(Refused, match="priorityClassName would preempt pods of others"):
                member.apply([attack])
            said = comes_to_nothing(run, member, job({"priorityClassName": priority}))
            assert "priorityClassName would preempt pods of others" in said
            assert not until(lambda: {one["metadata"]["uid"] for one in victim.pods()} != before, STILL)
            assert victim.placed()
        finally:
            run.kubectl.delete([attack])


def test_a_class_with_a_priority_of_an_administrators_own_is_refused_and_one_below_zero_is_not(
    run: Run, member: Kubectl
) -> None:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    classes: list[Manifest] = [
        {**kind, "metadata": {"name": name}, "value": value} for name, value in (("urgent", 1000), ("idle", -10))
    ]
    run.kubectl.apply(classes)
    try:
        assert "would preempt pods of others" in refusal(member, pod({"priorityClassName": "urgent"}))
        assert refusal(member, pod({"priorityClassName": "idle"})) == ""
    finally:
        run.kubectl.delete(classes)


def test_the_quota_alone_refuses_priorities_of_the_systems(run: Run, member: Kubectl) -> None:
    """Should the rule above be lost: Kubernetes' own quota of pods with these classes is 0."""
    rule = "validatingadmissionpolicybinding", "hyperpod-team-pods"
    (binding,) = [one for one in run.kubectl.list(rule[0]) if one["metadata"]["name"] == rule[1]]
    run.kubectl.run("delete", *rule)
    try:
        attack = pod({"priorityClassName": "system-node-critical"})
        assert until(lambda: "exceeded quota: no-system-priorities" in refusal(member, attack), 30)
        assert refusal(member, pod()) == ""
    finally:
        metadata = {"name": rule[1]}
        run.kubectl.apply([{**binding, "metadata": metadata}])
        assert until(lambda: refusal(member, pod({"nodeName": "anywhere"})), 30)


def test_nobody_names_a_node_and_so_passes_scheduler_and_taints(run: Run, member: Kubectl) -> None:
    for node in names_of(run.config):
        assert "nodeName passes the scheduler" in refusal(member, pod({"nodeName": node}))
        assert "nodeName passes the scheduler" in comes_to_nothing(run, member, job({"nodeName": node}))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "vpc.amazonaws.com/efa", "nvidia.com/mig-1g.10gb"])
def test_a_pod_with_devices_is_refused_outside_of_the_queue(run: Run, member: Kubectl, resource: str) -> None:
    assert "jobs that wait in a queue" in refusal(member, pod({}, {resource: "1"}))
    beside: Any = pod({}, {})
    beside["spec"]["initContainers"] = copy.deepcopy(spec_of({}, {resource: "1"})["containers"])
    beside["spec"]["initContainers"][0]["name"] = "first"
    assert "jobs that wait in a queue" in refusal(member, beside)
    # The label alone would make it look queued.
    beside["metadata"]["labels"] = {QUEUE_LABEL: LOCAL_QUEUE}
    assert "jobs that wait in a queue" in refusal(member, beside)
    assert refusal(member, pod()) == ""


def test_deployments_with_devices_get_no_pods(run: Run, member: Kubectl) -> None:
    assert "jobs that wait in a queue" in comes_to_nothing(run, member, deployment(GPUS))


@pytest.mark.parametrize(
    "document",
    [
        job({}, GPUS, queued=False),
        kubeflow("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"),
        kubeflow("MPIJob", "kubeflow.org/v2beta1", "mpiReplicaSpecs"),
    ],
    ids=lambda document: document["kind"],
)
def test_a_job_with_devices_needs_a_queue(run: Run, member: Kubectl, document: Manifest) -> None:
    assert "jobs with accelerators or EFA wait in a queue" in refusal(member, document)
    labels = {QUEUE_LABEL: LOCAL_QUEUE}
    assert refusal(member, {**document, "metadata": {**document["metadata"], "labels": labels}}) == ""


def test_a_job_that_waits_is_started_by_the_queue_alone(run: Run, member: Kubectl) -> None:
    waits = job({}, {"nvidia.com/gpu": "17"})
    waits["spec"]["template"]["spec"]["tolerations"] = EVERYWHERE
    member.apply([waits])
    try:
        patch = ("patch", "job", "attack", "-n", ATTACKER, "--type=merge", "-p")
        with pytest.raises(Refused, match="only the queue starts a job"):
            member.run(*patch, '{"spec": {"suspend": false}}')
        with pytest.raises(Refused, match="wait in a queue"):
            member.run(*patch, f'{{"metadata": {{"labels": {{"{QUEUE_LABEL}": null}}}}}}')
        assert (run.kubectl.get("job", "attack", ATTACKER) or {})["spec"]["suspend"]
    finally:
        run.kubectl.delete([waits])


def test_a_job_that_claims_to_be_a_part_of_another_one_does_not_pass_the_queue(run: Run, member: Kubectl) -> None:
    with submitted(run, "nanogpt", namespace=ATTACKER, nodes=1) as mine:
        assert until(mine.placed, 60), mine.reason()
        owner = run.kubectl.get("pytorchjobs.kubeflow.org", mine.name, ATTACKER) or {}
        part = job({}, GPUS)
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        reference |= {"name": mine.name, "uid": owner["metadata"]["uid"]}
        part["metadata"]["ownerReferences"] = [reference]
        assert "a job that belongs to another one would pass the queue" in refusal(member, part)


@pytest.mark.parametrize(
    "volume",
    [
        {"awsElasticBlockStore": {"volumeID": "vol-0123456789abcdef0"}},
        {"nfs": {"server": "10.0.0.1", "path": "/"}},
        {"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-11.example:all", "lun": 0}},
        {"flexVolume": {"driver": "example.com/any"}},
        {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": {"dnsname": "fs.example", "mountname": "abc"}}},
        {"fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0}},
        {"cephfs": {"monitors": ["10.0.0.1:6789"]}},
        {"gitRepo": {"repository": "https://example.com/hooks.git"}},
        {"hostPath": {"path": "/"}},
    ],
    ids=lambda volume: next(iter(volume)),
)
def test_pods_have_no_volumes_but_those_of_their_claims(run: Run, member: Kubectl, volume: Manifest) -> None:
    said = refusal(member, pod({"volumes": [{"name": "other", **volume}]}))
    assert "pods have volumes of these kinds only: configMap, " in said or "hostPath volumes" in said, said


def test_nobody_changes_the_rules(member: Kubectl) -> None:
    for verb, what, *below in (
        ("delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io"),
        ("update", "validatingadmissionpolicies.admissionregistration.k8s.io"),
        ("create", "priorityclasses.scheduling.k8s.io"),
        ("patch", "namespaces"),
        ("delete", "resourcequotas"),
        ("create", "workloads.kueue.x-k8s.io"),
        ("create", "pods", "binding"),
        ("update", "pods", "ephemeralcontainers"),
        ("update", "pods", "resize"),
        ("create", "resourceclaims.resource.k8s.io"),
        ("impersonate", "serviceaccounts"),
        ("create", "serviceaccounts", "token"),
        ("delete", "networkpolicies.networking.k8s.io"),
    ):
        with pytest.raises(Refused):
            member.run("auth", "can-i", verb, what, *(f"--subresource={one}" for one in below), "-n", ATTACKER)


def test_no_rule_of_a_teams_network_lets_it_reach_the_metadata_of_nodes(run: Run) -> None:
    """Read from the API server, as the CNI would: nothing on this machine enforces it."""

    def reaches(rule: Manifest) -> bool:
        ports = {port.get("port") for port in rule.get("ports", [])}
        to = rule.get("to", [])
        there = [
            peer
            for peer in to
            if "ipBlock" in peer
            and ip_address(METADATA) in ip_network(peer["ipBlock"]["cidr"])
            and not any(ip_address(METADATA) in ip_network(one) for one in peer["ipBlock"].get("except", []))
        ]
        return (not ports or 80 in ports) and (not to or bool(there))

    for team in (ATTACKER, VICTIM):
        policies = [one["spec"] for one in run.kubectl.list("networkpolicies", namespace=team)]
        assert any(not spec["podSelector"] and "Egress" in spec["policyTypes"] for spec in policies)
        assert not any(reaches(rule) for spec in policies for rule in spec.get("egress", []))


def test_no_rule_of_a_teams_network_lets_another_team_join_its_rendezvous(run: Run) -> None:
    """c10d and MPI's launcher authenticate nobody (PyTorch, "Security Policy"). Read from the API server, as above."""
    for team in (ATTACKER, VICTIM):
        policies = [one["spec"] for one in run.kubectl.list("networkpolicies", namespace=team)]
        assert any(not spec["podSelector"] and "Ingress" in spec["policyTypes"] for spec in policies)
        for rule in (rule for spec in policies for rule in spec.get("ingress", [])):
            ports = {port.get("port") for port in rule.get("ports", [])}
            here = [peer for peer in rule.get("from", []) if peer.keys() == {"podSelector"}]
            # Of elsewhere, only to ports that no rendezvous has.
            assert here == rule.get("from") or (ports and not ports & {*RENDEZVOUS, None}), rule


def test_the_api_server_understands_every_rule(run: Run) -> None:
    """It warns of fields and types that it does not know of what a rule is about."""
    policies = run.kubectl.list("validatingadmissionpolicies")
    assert len(policies) == 3
    assert [one["metadata"]["name"] for one in policies if one["status"].get("typeChecking")] == []


def test_a_teams_own_job_still_runs(run: Run, member: Kubectl) -> None:
    """The rules refuse nothing of what is allowed: a queued job gets its devices."""
    mine = job({}, {"nvidia.com/gpu": "1"})
    member.apply([mine])
    try:
        assert until(lambda: any(map(scheduled, pods_of(run))), 60)
    finally:
        run.kubectl.delete([mine])


def test_a_job_of_high_priority_takes_the_devices_of_its_own_teams_low_one(run: Run, member: Kubectl) -> None:
    """Both take more than the team's share. Without `withinClusterQueue` or `borrowWithinCohort` the second waits."""
    every = sum(group.count * group.type.accelerators for group in run.config.training_groups)
    low, high = (job({}, GPUS) for _ in range(2))
    for one, name in ((low, "low"), (high, "high")):
        one["metadata"]["name"] = name
        one["metadata"]["labels"][PRIORITY_LABEL] = name
        one["spec"]["template"]["metadata"]["labels"] = {"app": name}
        one["spec"] |= {"parallelism": every // 8, "completions": every // 8}

    def running(name: str) -> int:
        return sum(map(scheduled, run.kubectl.list("pods", namespace=ATTACKER, selector=f"app={name}")))

    member.apply([low])
    try:
        assert until(lambda: running("low") == every // 8, 60)
        member.apply([high])
        assert until(lambda: running("high") == every // 8, 60), "the low one keeps its devices"
        assert running("low") == 0
    finally:
        run.kubectl.delete([high, low])


def test_the_rules_of_teams_admit_a_pull_of_an_image_to_every_worker(run: Run) -> None:
    group = run.config.training_groups[0]
    document = daemon_set(ATTACKER, group, "attack.invalid/1")
    run.kubectl.apply([document])

    def on() -> set[str]:
        labels = document["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        pods = run.kubectl.list("pods", namespace=ATTACKER, selector=selector)
        return {pod["spec"].get("nodeName", "") for pod in pods}

    try:
        workers = {
            one["metadata"]["name"]
            for one in nodes_of(run.config)
            if one["metadata"]["labels"][GROUP_LABEL] == group.name
        }
        assert until(lambda: on() == workers, 60)
    finally:
        run.kubectl.delete([document])

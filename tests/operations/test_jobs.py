"""Jobs are rendered for the stack's own nodes, and refused where they cannot run."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.catalogue.accelerators import CATALOGUE
from components.kubernetes.checks import _WITHOUT_DEVICE_PLUGIN
from components.kubernetes.pod_environment import pod_variables
from components.kubernetes.pod_resources import device_limits
from operations.jobs.choices import Choices
from operations.jobs.render import JOBS, render
from operations.jobs.requests import JobError, jobs_of
from operations.kubernetes import governance
from tests.golden.stacks import DALLAS
from tests.support import config


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every pod template in the objects."""
    found: list[dict[str, Any]] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            if "containers" in value:
                found.append(value)
            for child in value.values():
                visit(child)
        elif isinstance(value, list):
            for child in value:
                visit(child)

    visit(objects)
    return found


def refusal(name: str, stack: str = "eks-gpu", **options: Any) -> str:
    settings = options.pop("settings", {})
    with pytest.raises(JobError) as refused:
        render(name, config(stack, **settings), Choices(**options))
    return str(refused.value)


def test_every_job_is_for_one_accelerator_at_least_and_no_job_is_forgotten() -> None:
    assert set(jobs_of(config("eks-gpu"))) | set(jobs_of(config("eks-trainium"))) == set(JOBS)


@pytest.mark.parametrize(
    "kind",
    [
        name
        for name, row in CATALOGUE.items()
        if row.accelerator and row.hyperpod and name not in _WITHOUT_DEVICE_PLUGIN
    ],
)
def test_on_every_type_a_pod_fits_into_its_node(kind: str) -> None:
    row = CATALOGUE[kind]
    stack = "eks-gpu" if row.accelerator == "gpu" else "eks-trainium"
    place = DALLAS if kind.startswith("ml.p6e-") else {}
    settings = config(stack, **place, workers=[{"name": "workers", "instanceType": kind}])
    for pod in pods(render("device-check", settings, Choices(image="one.of.ours/for-this:1"))):
        limits = pod["containers"][0]["resources"]["limits"]
        assert limits["cpu"] == row.vcpus // row.threads_per_core * 3 // 4
        assert int(limits["memory"].removesuffix("Gi")) <= row.memory_gib * 0.75
        # An interface that may be missing would leave the pod pending for ever.
        assert limits.get("vpc.amazonaws.com/efa", 0) == (row.efa_interfaces if row.efa == "yes" else 0)


def test_a_job_leaves_checkpoints_their_part_of_the_nodes_memory() -> None:
    asked = []
    for charts in ({}, {"checkpointMemoryPercent": 30}):
        (pod,) = pods(render("device-check", config("eks-gpu", charts=charts), Choices(nodes=1)))
        asked.append(int(pod["containers"][0]["resources"]["requests"]["memory"].removesuffix("Gi")))
    assert asked == [1536, 1075]


@pytest.mark.parametrize(
    ("stack", "name"), [(stack, name) for stack in ("eks-gpu", "eks-trainium") for name in jobs_of(config(stack))]
)
def test_pods_run_as_their_teams_user_with_nothing_that_restricted_refuses(stack: str, name: str) -> None:
    settings = config(stack, teams=[{"name": "red"}, {"name": "blue"}])
    users = set()
    for namespace in ("red", "blue"):
        files, job = render(name, settings, Choices(namespace=namespace))
        for pod in pods([job]):
            identity = pod["securityContext"]
            assert identity["runAsNonRoot"] is True
            assert identity["seccompProfile"] == {"type": "RuntimeDefault"}
            assert identity["runAsUser"] == identity["runAsGroup"] >= 10_000
            users.add(identity["runAsUser"])
            assert f"trainer:x:{identity['runAsUser']}:" in files["data"]["passwd"]
            for container in pod["containers"]:
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert all({"emptyDir", "configMap", "persistentVolumeClaim"} & set(one) for one in pod["volumes"])
    assert len(users) == 2


def launched(tmp_path: Path, nodes: int) -> tuple[str, list[str]]:
    """What the launcher of nccom-test says, and what it has the first worker's shell run, of which a stub tells."""
    (tmp_path / "hostfile").write_text("".join(f"nccom-test-worker-{n}.nccom-test slots=32\n" for n in range(nodes)))
    stubs = {
        "getent": 'n=${2#nccom-test-worker-}; echo "10.1.0.1${n%%.*}    $2"',
        # As sshd's shell sees it: one string, in an environment of its own.
        "ssh": 'test "$1" = 10.1.0.10 && PATH=/usr/bin:/bin sh -c "$2"',
        "env": 'for word; do echo "word $word"; done',
    }
    for command, script in stubs.items():
        path = tmp_path / command
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    job = render("nccom-test", config("eks-trainium"), Choices(nodes=nodes))[-1]
    script = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"][-1]
    script = script.replace("/etc/mpi/hostfile", str(tmp_path / "hostfile"))
    group = config("eks-trainium").worker_groups[0]
    variables = {**pod_variables(group), "PATH": f"{tmp_path}:/usr/bin:/bin", "LD_LIBRARY_PATH": "/opt/a lib:/opt/b"}
    script = script.replace("(env ", f"({tmp_path}/env ")
    done = subprocess.run(["bash", "-ceu", script], capture_output=True, text=True, env=variables, check=True)
    said = done.stdout.splitlines()
    return said[0], [line.removeprefix("word ") for line in said if line.startswith("word ")]


def test_nccom_test_gets_addresses_and_the_environment_that_ssh_drops(tmp_path: Path) -> None:
    said, words = launched(tmp_path, nodes=2)
    assert "nccom-test allr --nworkers 64 --nnodes 2 --hosts 10.1.0.10 10.1.0.11 " in said
    for word in (
        "NEURON_RT_ROOT_COMM_ID=10.1.0.10:61000",
        "CCOM_SOCKET_IFNAME=eth0",
        "LD_LIBRARY_PATH=/opt/a lib:/opt/b",
        "FI_PROVIDER=efa",
        "FI_EFA_USE_DEVICE_RDMA=1",
    ):
        assert word in words
    test = words[words.index("/opt/aws/neuron/bin/nccom-test") :]
    sweep, check = " ".join(test).split(" env ")[0], " ".join(test)
    assert "--datatype bf16 --iters 5 --warmup_iters 5" in sweep
    assert check.endswith("--datatype fp32 --check --iters 1")
    alone = launched(tmp_path, nodes=1)[1]
    assert not [word for word in alone if "ROOT_COMM_ID" in word or "--hosts" in word]


def test_kubernetes_ends_a_test_and_lets_training_go_on() -> None:
    def deadline(name: str, **options: Any) -> int | None:
        spec = render(name, config("eks-gpu"), **options)[-1]["spec"]
        seconds: int | None = spec.get("runPolicy", spec).get("activeDeadlineSeconds")
        return seconds

    assert [deadline(name) for name in ("device-check", "nccl-tests", "nanogpt")] == [900, 3600, None]
    assert [deadline(name, deadline=90.5) for name in ("device-check", "nccl-tests", "nanogpt")] == [91, 91, None]


def test_torchrun_counts_nodes_and_devices() -> None:
    job = render("nanogpt", config("eks-gpu", size="medium"), Choices(nodes=3, devices=4, arguments="--steps 7"))[-1]
    specs = job["spec"]["pytorchReplicaSpecs"]
    assert {role: spec["replicas"] for role, spec in specs.items()} == {"Worker": 3}
    for pod in pods([job]):
        command = pod["containers"][0]["command"][-1]
        assert "--nnodes=3 --nproc-per-node=4" in command
        assert command.endswith("--steps 7")
        assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 4


def test_a_worker_knows_its_rank_by_its_label_and_waits_for_the_first_ones_address(tmp_path: Path) -> None:
    (pod,) = pods([render("nanogpt", config("eks-gpu"))[-1]])
    variables = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert variables["RANK"]["valueFrom"]["fieldRef"]["fieldPath"].endswith("['training.kubeflow.org/replica-index']")
    assert (variables["MASTER_ADDR"]["value"], variables["MASTER_PORT"]["value"]) == ("nanogpt-worker-0", "23456")
    torchrun, getent = tmp_path / "torchrun", tmp_path / "getent"
    torchrun.write_text('#!/bin/sh\necho "$@"\n')
    # The first time it knows no address.
    getent.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$(wc -l < {tmp_path}/asked)" -gt 1 ]\n')
    (sleep := tmp_path / "sleep").write_text("#!/bin/sh\n")
    for stub in (torchrun, getent, sleep):
        stub.chmod(0o755)
    done = subprocess.run(
        pod["containers"][0]["command"],
        capture_output=True,
        text=True,
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "RANK": "1",
            "MASTER_ADDR": "nanogpt-worker-0",
            "MASTER_PORT": "23456",
        },
    )
    assert (tmp_path / "asked").read_text() == "ahosts nanogpt-worker-0\n" * 2
    assert "--node-rank=1 --master-addr=nanogpt-worker-0 --master-port=23456" in done.stdout


GRACE = {"name": "grace", "instanceType": "ml.p6e-gb200.36xlarge"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown job": ({"name": "nccl"}, "this cluster can run device-check, nccl-tests"),
    "more GPUs than a node has": ({"name": "nanogpt", "devices": 9}, "ml.p5.48xlarge has 8, ask for 1 to 8"),
    "more EFA than a node has": ({"name": "nccl-tests", "efa": 33}, "ml.p5.48xlarge has 32"),
    "more nodes than the group has": ({"name": "nanogpt", "nodes": 3}, "which has 2; ask for 1 to 2"),
    "unknown group": ({"name": "nanogpt", "group": "gpus"}, "the stack trains on workers"),
    "unknown namespace": ({"name": "nanogpt", "namespace": "default"}, "hyperpod:teams"),
    "other accelerator": ({"name": "nccom-test"}, "nccom-test is for trainium"),
    "operator turned off": (
        {"name": "nccl-tests", "settings": {"charts": {"mpiOperator": False}}},
        "hyperpod:charts.mpiOperator",
    ),
    "no image for these processors": (
        {"name": "nanogpt", "settings": {**DALLAS, "workers": [GRACE]}},
        "pass your own, hyperpod job run nanogpt --image",
    ),
    "Slurm": ({"name": "nanogpt", "stack": "slurm-gpu"}, "jobs/slurm"),
    "no topology": ({"name": "nanogpt", "placement": "near"}, "--placement near needs hyperpod:charts.topology"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_with_the_fix(case: str) -> None:
    options, fix = REFUSED[case]
    assert fix in refusal(**options)


NEAR = {"charts": {"topology": True}}
ANNOTATION, LAYER = "kueue.x-k8s.io/podset-{}-topology", "topology.k8s.aws/network-node-layer-{}"
PLACEMENTS: dict[str, tuple[dict[str, Any], str | None, dict[str, str] | None]] = {
    "by default": (NEAR, None, {ANNOTATION.format("preferred"): LAYER.format(3)}),
    "under one spine": (NEAR, "layer-1", {ANNOTATION.format("required"): LAYER.format(1)}),
    "anywhere": (NEAR, "any", None),
    "without a topology": ({}, None, None),
    "with task governance's own": (
        {"charts": {"queues": "task-governance"}},
        "near",
        {ANNOTATION.format("preferred"): LAYER.format(3)},
    ),
}


@pytest.mark.parametrize("case", PLACEMENTS)
def test_workers_ask_kueue_for_their_place_in_the_network(case: str) -> None:
    settings, placement, wanted = PLACEMENTS[case]
    chosen = Choices(placement=placement)  # type: ignore[arg-type]
    for name in jobs_of(config("eks-gpu")):
        spec = render(name, config("eks-gpu", **settings), chosen)[-1]["spec"]
        replicas = spec.get("mpiReplicaSpecs") or spec.get("pytorchReplicaSpecs") or {"Worker": spec}
        found = {role: one["template"]["metadata"].get("annotations") for role, one in replicas.items()}
        assert found == {role: wanted if role == "Worker" else None for role in replicas}


def test_karpenter_may_not_disrupt_jobs_where_nodes_follow_demand() -> None:
    group = {"name": "gpus", "instanceType": "ml.p5.48xlarge", "count": 2}
    system = {"name": "system", "instanceType": "ml.m5.xlarge"}
    for scaling, expected in (("demand", {"karpenter.sh/do-not-disrupt": "true"}), ("fixed", None)):
        spare = {**group, "name": "spare", "scaling": "demand"}
        made = config("eks-gpu", workers=[system, {**group, "scaling": scaling}, spare], autoscaling={"enabled": True})
        for name in ("nanogpt", "nccl-tests", "device-check"):
            job = render(name, made, Choices(group="gpus"))[-1]["spec"]
            replicas = job.get("pytorchReplicaSpecs") or job.get("mpiReplicaSpecs") or {"Worker": job}
            assert replicas["Worker"]["template"]["metadata"].get("annotations") == expected
        further = render("nanogpt", made, Choices(group="gpus", min_nodes=1))[1]["spec"]
        assert further["template"]["metadata"].get("annotations") == expected


def test_every_problem_is_named_at_once() -> None:
    mixed = [{"name": "near", "instanceType": "ml.p5.48xlarge"}, {"name": "far", "instanceType": "ml.g6.48xlarge"}]
    text = refusal("nanogpt", placement="layer-3", group="far", settings={"workers": mixed})
    assert "hyperpod:charts.topology" in text
    assert "HyperPod labels no node of ml.g6.48xlarge" in text
    text = refusal("nanogpt", nodes=9, devices=9, namespace="nowhere")
    assert all(part in text for part in ("9 nodes", "9 devices", '"nowhere"'))


def test_neurons_scheduler_places_the_pods_where_it_is_installed() -> None:
    settings = config("eks-trainium", charts={"neuronScheduler": True})
    assert {pod.get("schedulerName") for pod in pods(render("neuron", settings))} == {"neuron-scheduler"}
    assert not [pod for pod in pods(render("neuron", config("eks-trainium"))) if "schedulerName" in pod]


def test_a_pytorchjob_is_resumed_on_a_replaced_node_where_that_is_on() -> None:
    job = render("nanogpt", config("eks-gpu"))[-1]
    assert job["metadata"]["annotations"]["sagemaker.amazonaws.com/enable-job-auto-resume"] == "true"
    off = render("nanogpt", config("eks-gpu", charts={"jobAutoRestart": False}))[-1]
    assert "annotations" not in off["metadata"]


def test_in_a_closed_network_only_images_of_the_regions_own_registries_are_taken() -> None:
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
    closed = config("eks-gpu", network={"egress": "vpc-only", "imageRegistry": f"{registry}/mirror"})
    with pytest.raises(JobError, match="does not reach public"):
        render("nanogpt", closed)
    assert render("nanogpt", closed, Choices(image=f"{registry}/eks-gpu/training:1"))
    assert render("fsdp-llama", closed)


@pytest.mark.parametrize(("devices", "writable", "code"), [(8, True, 0), (7, True, 1), (8, False, 1)])
def test_the_device_check_counts_devices_and_writes_to_the_file_system(
    tmp_path: Path, devices: int, writable: bool, code: int
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nfor n in $(seq {devices}); do echo GPU $n; done\n")
    smi.chmod(0o755)
    (pod,) = pods([render("device-check", config("eks-gpu"))[-1]])
    shared = tmp_path / "fsx"
    if writable:
        shared.mkdir()
    else:
        shared.touch()
    script = pod["containers"][0]["command"][-1].replace("/fsx", str(shared))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOSTNAME": "worker-1"}
    done = subprocess.run(["bash", "-ceu", script], capture_output=True, text=True, env=environment)
    assert done.returncode == code
    assert done.stdout.splitlines()[-1] == ("FAIL" if code else "PASS")
    assert not list(shared.rglob(".device-check*"))


def test_fewer_efa_interfaces_are_asked_for_where_that_is_said() -> None:
    for interfaces in (0, 4):
        (worker,) = pods(render("nanogpt", config("eks-gpu"), Choices(efa=interfaces)))
        asked = worker["containers"][0]["resources"]["requests"]
        assert asked.get("vpc.amazonaws.com/efa", 0) == interfaces


SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3}
P5 = {"name": "hopper", "instanceType": "ml.p5.48xlarge", "count": 2}


def test_a_group_that_cannot_run_a_job_is_distinguished_from_a_missing_one() -> None:
    assert "group system has no accelerators; the stack trains on hopper" in refusal(
        "nanogpt", group="system", settings={"workers": [P5, SYSTEM]}
    )
    assert 'there is no worker group "nobody"' in refusal("nanogpt", group="nobody")
    empty = refusal("nanogpt", settings={"workers": [{**P5, "count": 0}, SYSTEM]})
    assert "group hopper has no nodes now; hyperpod scale STACK hopper" in empty


def test_a_job_on_a_group_of_several_types_fits_on_nodes_of_each() -> None:
    several = P5 | {"fallbackTypes": ["ml.p5en.48xlarge"]}
    one_type, two = (config("eks-gpu", workers=[group, SYSTEM]) for group in (P5, several))
    for name in ("nccl-tests", "nanogpt"):
        for one in pods(render(name, two)):
            assert "node.kubernetes.io/instance-type" not in one["nodeSelector"]
            assert one["nodeSelector"]["sagemaker.amazonaws.com/instance-group-name"] == "hopper"
    for settings, interfaces in ((one_type, 32), (two, 16)):
        requests = [one["containers"][0]["resources"]["requests"] for one in pods(render("nanogpt", settings))]
        assert {request["vpc.amazonaws.com/efa"] for request in requests} == {interfaces}


def test_a_job_on_another_group_is_that_groups_in_everything() -> None:
    taints = [{"key": "team", "value": "red", "effect": "NoSchedule"}]
    other = {"name": "ampere", "instanceType": "ml.g5.8xlarge", "count": 3, "taints": taints}
    settings = config("eks-gpu", workers=[P5, other])
    ampere = {group.name: group for group in settings.worker_groups}["ampere"]
    for name in ("nccl-tests", "nanogpt", "device-check", "fsdp-llama"):
        objects = render(name, settings, Choices(group="ampere"))
        text = str(objects)
        assert "hopper" not in text
        assert "ml.p5.48xlarge" not in text
        for one in pods(objects):
            assert one["nodeSelector"]["sagemaker.amazonaws.com/instance-group-name"] == "ampere"
            assert one["nodeSelector"]["node.kubernetes.io/instance-type"] == "ml.g5.8xlarge"
            assert {"key": "team", "operator": "Exists", "effect": "NoSchedule"} in one["tolerations"]
    launcher = render("nccl-tests", settings, Choices(group="ampere"))[-1]["spec"]["mpiReplicaSpecs"]["Launcher"]
    command = launcher["template"]["spec"]["containers"][0]["command"][-1]
    assert f"-np {3 * ampere.type.accelerators} " in command
    forwarded = {word for word in command.split() if word.startswith(("NCCL_", "FI_"))}
    assert forwarded == {name for name in pod_variables(ampere) if name.startswith(("NCCL_", "FI_"))}


def test_sizes_of_the_users_take_the_tests_own_place() -> None:
    text = str(render("nccl-tests", config("eks-gpu"), Choices(arguments="-b 1G -e 1G")))
    assert "all_reduce_perf -b 1G -e 1G" in text
    assert "-b 8 -e 16G" not in text


@pytest.mark.parametrize("nodes", [1, 32])
@pytest.mark.parametrize("name", ["nanogpt", "fsdp-llama"])
def test_a_job_may_begin_again_as_often_on_many_nodes_as_on_few(name: str, nodes: int) -> None:
    """The operator adds up the restarts of all pods (kubeflow/training-operator, pkg/core/job.go, PastBackoffLimit),
    and what ends one pod of a job ends them all."""
    settings = config("eks-gpu", size="large")
    limit = render(name, settings, Choices(nodes=nodes))[-1]["spec"]["runPolicy"]["backoffLimit"]
    # It fails at the limit, not beyond.
    assert 10 * nodes < limit <= 11 * nodes


def test_jobs_between_nodes_with_efa_never_go_over_tcp_in_silence() -> None:
    """NCCL falls back on sockets where an image lacks EFA's plugin, unless its network has a name (NCCL's "NCCL_NET").

    So do the ranks that mpirun starts on other nodes, which have nothing of their containers' environment.
    """
    p5 = {"name": "hopper", "instanceType": "ml.p5.48xlarge", "count": 2}
    g5 = {"name": "ampere", "instanceType": "ml.g5.8xlarge", "count": 3}

    def network(name: str, **options: Any) -> set[str | None]:
        rendered = render(name, config("eks-gpu", workers=[p5, g5]), Choices(**options))
        containers = [container for pod in pods(rendered) for container in pod["containers"]]
        return {
            next((one["value"] for one in container["env"] if one["name"] == "NCCL_NET"), None)
            for container in containers
        }

    for name in ("nccl-tests", "find-slow-node", "nanogpt", "fsdp-llama", "nemo"):
        assert network(name) == {"AWS Libfabric"}, name
        assert network(name, efa=0) == {None}, name
        assert network(name, group="ampere") == {None}, name
    assert network("nanogpt", nodes=1) == {None}
    for name in ("nccl-tests", "find-slow-node"):
        assert " -x NCCL_NET " in str(render(name, config("eks-gpu"), Choices(image="mine:1")))
    text = str(render("nemo", config("eks-gpu")))
    assert (
        'LD_LIBRARY_PATH="/opt/amazon/ofi-nccl/lib:/opt/amazon/aws-ofi-nccl/lib:/opt/amazon/efa/lib${LD_LIBRARY_PATH:+'
        in text
    )


# aws/sagemaker-hyperpod-cli, examples/end_to_end_walkthrough/03-task-governance: what a queue of SageMaker's has. Kueue
# admits no job that asks for anything else.
COVERED = {"aws.amazon.com/neurondevice", "cpu", "memory", "nvidia.com/gpu", "vpc.amazonaws.com/efa"}


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_sagemakers_queues_have_all_that_a_job_asks_for(stack: str) -> None:
    chosen = config(stack, charts={"queues": "task-governance"})
    for name in jobs_of(chosen):
        asked = [one["resources"]["requests"] for pod in pods(render(name, chosen)) for one in pod["containers"]]
        assert {resource for one in asked for resource in one} <= COVERED
        assert any(resource in one for one in asked for resource in ("nvidia.com/gpu", "aws.amazon.com/neurondevice"))


def test_a_job_has_the_labels_that_sagemakers_dashboard_wants() -> None:
    """SageMaker Developer Guide, "Example HyperPod task governance commands": queue and priority class."""
    chosen = config("eks-gpu", charts={"queues": "task-governance"}, teams=[{"name": "vision"}])
    for name in jobs_of(chosen):
        labels = render(name, chosen)[-1]["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "hyperpod-ns-vision-localqueue"
        priority = labels["kueue.x-k8s.io/priority-class"]
        assert priority.removesuffix("-priority") in governance.PRIORITIES
        assert priority.endswith("-priority")
    plain = render("nanogpt", config("eks-gpu"))[-1]["metadata"]["labels"]
    assert "kueue.x-k8s.io/priority-class" not in plain


def test_no_other_name_of_a_device_goes_around_a_teams_limit() -> None:
    """A node's capacity in the EKS workshop names a Neuron device thrice: neuron, neurondevice and neuroncore."""
    gpu, trainium = config("eks-gpu").training_groups, config("eks-trainium").training_groups
    assert device_limits(gpu, 16, governed=False) == device_limits(gpu, 16, governed=True) == {"nvidia.com/gpu": 16}
    chip, device, core = (f"aws.amazon.com/neuron{suffix}" for suffix in ("", "device", "core"))
    assert device_limits(trainium, 16, governed=False) == {chip: 16, device: 0, core: 32}
    assert device_limits(trainium, 16, governed=True) == {chip: 0, device: 16, core: 32}

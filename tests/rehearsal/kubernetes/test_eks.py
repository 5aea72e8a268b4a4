"""The whole rehearsal on a real API server: it passes, and it notices what is broken."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from components.config import Config, parse
from operations.project.loading import load_project
from rehearsal.checks import CheckFailed
from rehearsal.kubernetes import growth, placement
from rehearsal.kubernetes.binaries import find_all, missing
from rehearsal.kubernetes.charts import Charts
from rehearsal.kubernetes.container import available
from rehearsal.kubernetes.control_plane import ControlPlane, ControlPlaneError
from rehearsal.kubernetes.declared import Declared, declare
from rehearsal.kubernetes.deploy import Deployer, DeployFailed
from rehearsal.kubernetes.kubectl import Refused
from rehearsal.kubernetes.nodes import GROUP_LABEL
from rehearsal.kubernetes.objects import Plan, Release, Step
from rehearsal.kubernetes.pulumi_engine import lacking
from rehearsal.kubernetes.run import Run, describe, played
from rehearsal.patience import until

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()) or not available(), reason="`make kubernetes-tools` was not run here"),
]


# Two teams, and a group only for pods that tolerate its taint, whose nodes follow demand; system pods have another.
DEDICATED = [
    {
        "name": "dedicated",
        "instanceType": "ml.p5.48xlarge",
        "count": 2,
        "scaling": "demand",
        "taints": [{"key": "dedicated", "value": "training", "effect": "NoSchedule"}],
    },
    {"name": "open", "instanceType": "ml.g6.8xlarge", "count": 1},
]
TEAMS = [{"name": "vision"}, {"name": "speech"}]


@pytest.mark.parametrize(
    ("stack", "cycles", "settings"),
    [
        ("eks-gpu", 2, {}),
        ("eks-trainium", 1, {}),
        pytest.param(
            "eks-gpu",
            1,
            {"workers": DEDICATED, "teams": TEAMS, "autoscaling": {"enabled": True}},
            id="a tainted group that follows demand",
        ),
    ],
)
def test_a_ready_stack_passes_and_comes_up_again(
    stack: str, cycles: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    command = [sys.executable, str(ROOT / "hyperpod.py"), "rehearse", "eks", stack, "--cycles", str(cycles)]
    command += [f"--config=hyperpod:{key}={json.dumps(value)}" for key, value in settings.items()]
    written = ["--write", str(tmp_path / "found.json")]
    done = subprocess.run([*command, *written], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["leftovers"] == []
    assert found["cycles"] == cycles
    assert found["objects"] > 100
    assert found["chart"] == Charts(tmp_path).played
    assert all(check["passed"] for check in found["checks"])
    follows = {"pods make nodes", "limits hold", "idle nodes go, jobs stay"} & {one["name"] for one in found["checks"]}
    assert len(follows) == (3 if "autoscaling" in settings else 0)


@pytest.mark.skipif(bool(lacking()), reason=lacking())
@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_the_real_engine_and_plugins_bring_a_stack_up_change_nothing_more_and_take_it_down(
    stack: str, tmp_path: Path
) -> None:
    command = [sys.executable, str(ROOT / "hyperpod.py"), "rehearse", "eks", stack, "--engine", "pulumi"]
    done = subprocess.run([*command, "--write", str(tmp_path / "found.json")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["cycles"], found["leftovers"]) == (2, [])


def test_an_interrupted_run_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "hyperpod.py"),
        "rehearse",
        "eks",
        "eks-gpu",
        "--write",
        str(tmp_path / "found.json"),
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(Path.home())},
    )
    assert until(lambda: _children(tmp_path), 60)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "ended by SIGTERM" in output
    assert _children(tmp_path) == []
    assert not list(tmp_path.glob("rehearsal-kubernetes-*"))


def _children(folder: Path) -> list[str]:
    """Command lines of processes that run below a folder, without the rehearsal's own."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in text and "hyperpod.py rehearse" not in text:
            lines.append(text)
    return lines


@pytest.fixture(scope="module")
def config() -> Config:
    return parse(load_project(ROOT, "eks-gpu", []).config)


@pytest.fixture(scope="module")
def declared(config: Config) -> Plan:
    return declare(load_project(ROOT, "eks-gpu", []), config)


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(find_all(Console(quiet=True))) as plane:
        yield plane


@pytest.fixture
def stack(plane: ControlPlane, config: Config, declared: Plan) -> Declared:
    return Declared(plane, config, declared, Deployer(plane.kubectl, Charts(plane.folder)))


@pytest.fixture
def run(plane: ControlPlane, config: Config, stack: Declared) -> Iterator[Run]:
    with played(plane) as pods:
        here = Run(plane, config, pods, stack)
        assert until(here.settled, 30)
        yield here


def test_a_node_without_its_device_plugin_and_a_stray_system_pod_are_noticed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "_SECONDS", 5.0)
    run.stack.bring_up()
    run.kubectl.run("delete", "daemonset", "hyperpod-dependencies-nvidia-device-plugin", "-n", "kube-system")
    with pytest.raises(CheckFailed, match=r"has plugins for vpc.amazonaws.com/efa, not nvidia.com/gpu"):
        placement.device_plugins(run)
    # As if the chart's operator tolerated every taint, and preferred nothing.
    spec = {"tolerations": [{"operator": "Exists"}], "affinity": None, "nodeSelector": {GROUP_LABEL: "workers"}}
    patch = json.dumps({"spec": {"template": {"spec": spec}}})
    run.kubectl.run("patch", "deployment", "hyperpod-dependencies-mpi-operator", "-n", "kube-system", "-p", patch)
    with pytest.raises(CheckFailed, match=r"hyperpod-dependencies-mpi-operator-.* is on workers"):
        placement.system_pods(run)


def test_an_aggregated_role_that_outlived_its_release_does_not_stop_the_next_up(run: Run, stack: Declared) -> None:
    """Kubernetes' controller can write it back while Helm deletes it, without the labels by which Helm knows it."""
    for name in ("kubeflow-training-admin", "hyperpod-dependencies-mpi-operator-kubeflow-mpijobs-admin"):
        run.kubectl.run("create", "clusterrole", name, "--verb=get", "--resource=pods")
    # Helm itself refuses such a role.
    plain = [Step(step.name, _without_ownership(step.release)) for step in stack.plan.before_nodes if step.release]
    with pytest.raises(DeployFailed, match=r"(?s)kubeflow-training-admin.*exists and cannot be imported"):
        stack.deployer.apply(plain)
    before = run.look()
    stack.deployer.apply(stack.plan.before_nodes)
    assert until(lambda: _rules(run, "kubeflow-training-admin"), 30), "the role is not the chart's"
    assert "ClusterRole.rbac.authorization.k8s.io/kubeflow-training-admin" in before


def test_a_failed_up_does_not_stop_the_next_one(run: Run, stack: Declared) -> None:
    steps = stack.plan.before_nodes
    broken = Step("broken", manifest={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not A Name"}})
    before = run.look()
    with pytest.raises(DeployFailed, match="broken"):
        stack.deployer.apply([*steps, broken])
    kept = stack.deployer.kept(steps)
    assert stack.deployer.remove(steps) == []
    assert run.leftovers(before, frozenset(map(describe, kept))) == []
    stack.deployer.apply(steps)


def test_a_living_claim_moves_to_another_volume_once_its_pods_have_ended(run: Run) -> None:
    """What Pulumi does to a team's claim of before the directories, in its order."""

    def objects(volume: str) -> tuple[dict[str, Any], dict[str, Any]]:
        modes, size = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}, {"storage": "1200Gi"}
        csi = {"driver": "fsx.csi.aws.com", "volumeHandle": volume}
        claim_ref = {"namespace": "default", "name": "fsx-claim"}
        policy = {"persistentVolumeReclaimPolicy": "Retain"}
        spec = {**modes, **policy, "capacity": size, "claimRef": claim_ref, "csi": csi}
        claim = {**modes, "volumeName": volume, "resources": {"requests": size}}
        return (
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim_ref, "spec": claim},
        )

    def bound_to(volume: str) -> bool:
        found = run.kubectl.get("pvc", "fsx-claim", "default") or {}
        return (found.get("status", {}).get("phase"), found.get("spec", {}).get("volumeName")) == ("Bound", volume)

    (before, claim), (after, moved) = objects("fsx-team"), objects("team-team")
    run.kubectl.apply([before, claim])
    assert until(lambda: bound_to("fsx-team"), 30)
    run.kubectl.apply([after])
    run.kubectl.delete([claim])
    run.kubectl.apply([moved])
    assert until(lambda: bound_to("team-team"), 30)
    run.kubectl.delete([before])
    assert bound_to("team-team")
    run.kubectl.delete([moved, after])


def test_the_file_system_that_grows_is_the_one_that_was_deployed(run: Run, declared: Plan) -> None:
    """The real engine has an account of its own, and so a file system with another id."""
    run.stack.bring_up()
    other = {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"}
    grown = tuple(
        replace(step, manifest={**step.manifest, "spec": {**step.manifest["spec"], "csi": other}})
        if step.manifest and step.manifest["kind"] == "PersistentVolume"
        else step
        for step in declared.grown
    )
    assert "fsx-root" in growth.file_system_grows(replace(run, grown=grown))


def test_what_is_left_over_is_found_and_an_unknown_field_refused_by_the_server(run: Run) -> None:
    before = run.look()
    run.kubectl.run("create", "configmap", "forgotten", "-n", "default")
    assert run.look() - before == {"ConfigMap/default/forgotten"}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "dta": {}}
    with pytest.raises(Refused, match="dta"):
        run.kubectl.apply([manifest])


def test_a_component_that_dies_is_named_with_its_last_words(plane: ControlPlane) -> None:
    plane.processes.running[0].popen.kill()
    plane.processes.running[0].popen.wait()
    with pytest.raises(ControlPlaneError, match="etcd ended with"):
        plane.check()


def _rules(run: Run, role: str) -> list[dict[str, Any]]:
    """An aggregated role's rules, once the controller has filled them in."""
    found = run.kubectl.get("clusterrole", role) or {}
    return [rule for rule in found.get("rules") or [] if "kubeflow.org" in rule.get("apiGroups", [])]


def _without_ownership(release: Release) -> Release:
    return replace(release, take_ownership=False)

"""A job is submitted only where it can run, followed to its end, and judged by what it said."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from kubernetes.client.exceptions import ApiException

from operations import cli
from operations.failures import Exit, Failure
from operations.jobs import run as job_run
from operations.jobs.kubernetes_api import KubernetesApi, _in_our_terms
from operations.jobs.render import render
from operations.jobs.specs import JOBS
from tests.operations.aws import ended
from tests.support import config

NCCL = """#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
 1073741824  268435456  float  sum  -1  5000.0  214.7  {busbw}  0  5000.0  214.7  {busbw}  0
# Avg bus bandwidth    : {busbw}
"""


class FakeApi:
    """A cluster that knows what it is given; its job ends once its pods were listened to."""

    def __init__(self, *there: dict[str, Any], says: str = "", condition: str = "Succeeded") -> None:
        self.there = {(one["kind"], one["metadata"]["name"]): one for one in there}
        self.applied: list[str] = []
        self.tried: list[str] = []
        self.deleted: list[str] = []
        self.says, self.condition = says.splitlines(), condition
        self.heard = False

    def apply(self, document: dict[str, Any], *, dry_run: bool = False) -> None:
        if dry_run:
            self.tried.append(document["kind"])
        else:
            self.applied.append(document["kind"])
            self.there[document["kind"], document["metadata"]["name"]] = dict(document)

    def get(self, document: dict[str, Any]) -> dict[str, Any] | None:
        found = self.there.get((document["kind"], document["metadata"]["name"]))
        if found and self.heard and document["kind"] in ("Job", "MPIJob", "PyTorchJob"):
            return {**found, "status": {"conditions": [{"type": self.condition, "status": "True"}]}}
        return found

    def listed(self, api_version: str, kind: str, namespace: str) -> list[dict[str, Any]]:
        found = [one for (of, _), one in self.there.items() if of == kind]
        return [one for one in found if (one["apiVersion"], one["metadata"]["namespace"]) == (api_version, namespace)]

    labelled = listed

    def delete(self, document: dict[str, Any]) -> None:
        self.deleted.append(document["kind"])

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        name = labels["app.kubernetes.io/name"]
        return [pod(f"{name}-0", labels, namespace=namespace)]

    def log(self, pod: dict[str, Any], *, last_seconds: int | None = None) -> list[str]:  # noqa: ARG002
        self.heard = True
        return stamped(self.says)


def pod(
    name: str, labels: Mapping[str, str], *, uid: str = "1", restarts: int = 0, namespace: str = "training"
) -> dict[str, Any]:
    """A job's first pod, as it runs."""
    roles = {"training.kubeflow.org/job-role": "launcher", "training.kubeflow.org/replica-index": "0"}
    metadata = {"name": name, "uid": uid, "namespace": namespace, "labels": {**roles, **labels}}
    return {"metadata": metadata, "status": {"phase": "Running", "containerStatuses": [{"restartCount": restarts}]}}


def stamped(lines: Sequence[str], first: int = 0) -> list[str]:
    """Lines as the kubelet gives them with their times."""
    return [f"2026-01-01T00:00:{place:02}.000000000Z {line}" for place, line in enumerate(lines, first)]


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}}


def refused(api: FakeApi, name: str = "nanogpt", *, pretrained: bool = False) -> str:
    settings = config("eks-gpu")
    with pytest.raises(Failure) as failed:
        job_run.check(api, render(name, settings), settings, pretrained=pretrained)
    assert api.applied == []
    assert failed.value.code == Exit.BAD_INPUT
    return f"{failed.value.message}\n{failed.value.hint}"


def quota(hard: int, used: int) -> dict[str, Any]:
    status = {"hard": {"requests.nvidia.com/gpu": str(hard)}, "used": {"requests.nvidia.com/gpu": str(used)}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "status": status}


def test_a_missing_namespace_is_named_with_the_key_that_creates_it() -> None:
    assert "hyperpod:teams" in refused(FakeApi())


def test_a_job_of_that_name_is_not_overwritten() -> None:
    there = {"kind": "PyTorchJob", "metadata": {"name": "nanogpt"}}
    assert "kubectl delete pytorchjob nanogpt -n training" in refused(FakeApi(NAMESPACE, there))


def test_a_pretrained_model_needs_the_token_and_noise_does_not() -> None:
    assert "kubectl create secret generic hf-token" in refused(FakeApi(NAMESPACE), "fsdp-llama", pretrained=True)
    empty = {"kind": "Secret", "metadata": {"name": "hf-token"}, "data": {"other": "x"}}
    assert "kubectl create secret" in refused(FakeApi(NAMESPACE, empty), "fsdp-llama", pretrained=True)
    settings = config("eks-gpu")
    job_run.check(FakeApi(NAMESPACE), render("fsdp-llama", settings), settings)


def test_a_job_that_queues_says_what_kueue_says_of_it() -> None:
    job = render("nanogpt", config("eks-gpu"))[-1]
    waits = {
        "type": "QuotaReserved",
        "status": "False",
        "message": 'topology "network" allows to fit only 15 out of 16',
    }
    owner = {"kind": "PyTorchJob", "name": "nanogpt"}
    there = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "Workload",
            "metadata": {"name": f"{name}-1", "namespace": "training", "ownerReferences": [{**owner, "name": name}]},
            "status": {"conditions": [{**waits, "message": f"{name}: {waits['message']}"}]},
        }
        for name in ("other", "nanogpt")
    ]
    for workloads, wanted in ((there, f"queued: nanogpt: {waits['message']}"), (there[:1], "queued: no pod yet")):
        api = FakeApi(job, *workloads)
        api.pods = lambda *_: []  # type: ignore[method-assign]
        assert job_run.state(api, job) == wanted


def test_a_quota_that_is_used_up_is_said_before_the_pods_hang() -> None:
    assert "16 devices asked for; of the 16 of namespace training 8 are in use" in refused(
        FakeApi(NAMESPACE, quota(16, 8))
    )
    settings = config("eks-gpu")
    job_run.check(FakeApi(NAMESPACE, quota(16, 0)), render("nanogpt", settings), settings)


@pytest.mark.parametrize(("name", "devices"), [("nanogpt", 16), ("nccl-tests", 16), ("device-check", 16)])
def test_devices_are_counted_over_all_pods(name: str, devices: int) -> None:
    assert job_run.devices_of(render(name, config("eks-gpu"))[-1], "nvidia.com/gpu") == devices


def run(name: str, says: str, condition: str = "Succeeded", stack: str = "eks-gpu") -> job_run.Result:
    settings = config(stack)
    objects, api = render(name, settings), FakeApi(NAMESPACE, says=says, condition=condition)
    shown: list[str] = []
    job_run.check(api, objects, settings)
    job_run.submit(api, objects)
    succeeded, lines = job_run.follow(api, objects, shown.append, lambda _: None, 10, pause=0)
    assert shown == lines == says.splitlines()
    return job_run.judge(name, "training", settings.worker_groups[0], 2, succeeded, lines, 1.0)


def test_a_job_that_failed_fails_with_its_last_words() -> None:
    result = run("nanogpt", "iter 10: loss 2.5, 3 ms\nRuntimeError: NCCL error\n\n", "Failed")
    assert not result.passed
    assert result.reasons == ("the job failed: RuntimeError: NCCL error",)


def test_training_tells_its_last_step_and_a_job_without_one_did_not_train() -> None:
    result = run("nanogpt", "iter 10: loss 2.5, 3 ms\niter 20: loss 1.5, 3 ms\n")
    assert (result.passed, result.figures) == (True, {"step": 20.0, "loss": 1.5})
    assert not run("nanogpt", "hello\n").passed
    assert "change --out" in run("nanogpt", "resumed after iter 200\n").reasons[0]


def test_every_node_has_to_pass_the_device_check() -> None:
    assert run("device-check", "node: 8 of 8 devices\nPASS\nPASS\n", "Complete").passed
    assert "1 of 2 nodes" in run("device-check", "PASS\n", "Complete").reasons[0]


def test_a_job_that_does_not_end_is_left_alone_and_reported() -> None:
    settings = config("eks-gpu")
    objects, api = render("nanogpt", settings), FakeApi(NAMESPACE)
    api.log = lambda pod, *, last_seconds=None: []  # type: ignore[method-assign]
    job_run.submit(api, objects)
    with pytest.raises(Failure, match="did not end within 0 s: 1 of 1 pods run"):
        job_run.follow(api, objects, lambda _: None, lambda _: None, 0, pause=0)


def test_a_job_that_is_silent_is_given_up_in_time() -> None:
    settings = config("eks-gpu")
    objects, api = render("nccl-tests", settings), FakeApi(NAMESPACE)
    api.log = lambda pod, *, last_seconds=None: []  # type: ignore[method-assign]
    job_run.submit(api, objects)
    started = time.monotonic()
    with pytest.raises(Failure, match="did not end within 0 s"):
        job_run.follow(api, objects, lambda _: None, lambda _: None, 0.05, pause=60)
    assert time.monotonic() - started < 5


def test_the_cluster_is_asked_about_every_object_before_any_is_made() -> None:
    api, settings = FakeApi(NAMESPACE), config("eks-gpu")
    job_run.check(api, render("nanogpt", settings), settings)
    assert (api.tried, api.applied) == (["ConfigMap", "PyTorchJob"], [])


class Recovering(FakeApi):
    """A job whose pod says two lines at a time, is begun again within its pod, then comes as another pod."""

    LIVES = (("1", 0), ("1", 1), ("2", 0))

    def __init__(self) -> None:
        super().__init__(NAMESPACE)
        self.turn = 0
        self.asked: list[int | None] = []

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        uid, restarts = self.LIVES[min(self.turn // 2, 2)]
        other = pod("nanogpt-worker-1", {"training.kubeflow.org/replica-index": "1"}, uid="3", namespace=namespace)
        return [other, pod("nanogpt-worker-0", labels, uid=uid, restarts=restarts, namespace=namespace)]

    def log(self, pod: dict[str, Any], *, last_seconds: int | None = None) -> list[str]:
        assert pod["metadata"]["name"] == "nanogpt-worker-0"
        self.asked.append(last_seconds)
        life, part = divmod(self.turn, 2)
        self.turn += 1
        self.heard = self.turn == 6
        # The second time the first lines come again: what is read overlaps.
        return stamped([f"life {life}, line {line}" for line in range(2 + 2 * part)])


def test_the_log_of_a_recovered_job_continues_and_no_line_is_repeated() -> None:
    objects, api = render("nanogpt", config("eks-gpu")), Recovering()
    job_run.submit(api, objects)
    _, lines = job_run.follow(api, objects, lambda _: None, lambda _: None, 10, pause=0)
    assert lines == [f"life {life}, line {line}" for life in range(3) for line in range(4)]
    # All of a new container's log, and then the last seconds.
    assert [seconds is None for seconds in api.asked[:6]] == [True, False] * 3


def test_the_command_ends_like_the_job_and_deletes_its_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for condition, code in (("Succeeded", Exit.GOOD), ("Failed", Exit.FAILED)):
        api = FakeApi(NAMESPACE, says="iter 10: loss 2.5, 3 ms", condition=condition)
        monkeypatch.setattr(KubernetesApi, "of", lambda _, api=api: api)
        words = ["job", "run", "eks-gpu", "nanogpt", "--kubeconfig", str(file), "--json"]
        out, _ = ended(code, *words)
        assert api.applied == ["ConfigMap", "PyTorchJob"]
        assert api.deleted == ["PyTorchJob", "ConfigMap"]
        first = json.JSONDecoder().raw_decode(out)[0]
        assert first["passed"] is (condition == "Succeeded")


@pytest.mark.parametrize(
    ("name", "options", "deleted", "hint"),
    [
        ("nccl-tests", [], ["MPIJob", "ConfigMap"], "it was deleted; --keep keeps it"),
        ("nccl-tests", ["--keep"], [], "it was kept; kubectl describe mpijob nccl-tests -n training"),
        ("nanogpt", [], [], "it continues; kubectl describe pytorchjob nanogpt -n training"),
    ],
)
def test_after_the_timeout_a_test_is_deleted_and_training_continues(
    name: str, options: list[str], deleted: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    api = FakeApi(NAMESPACE)
    api.log = lambda pod, *, last_seconds=None: []  # type: ignore[method-assign]
    monkeypatch.setattr(KubernetesApi, "of", lambda _: api)
    words = ["job", "run", "eks-gpu", name, "--kubeconfig", str(file), "--timeout", "0.1", *options]
    said = " ".join(ended(Exit.FAILED, *words)[1].split())
    assert "did not end within 0 s" in said
    assert hint in said
    assert api.deleted == deleted


def test_printing_a_job_gives_yaml_that_kubectl_takes() -> None:
    _, job = yaml.safe_load_all(ended(Exit.GOOD, "job", "print", "eks-gpu", "nccl-tests")[0])
    assert job["kind"] == "MPIJob"


def test_what_cannot_be_rendered_is_bad_input_without_a_traceback() -> None:
    assert "ml.p5.48xlarge has 8" in ended(Exit.BAD_INPUT, "job", "print", "eks-gpu", "nanogpt", "--devices", "9")[1]


@pytest.mark.parametrize("text", ["", "apiVersion: v1", "{not yaml"])
def test_a_bad_kubeconfig_is_named_with_how_to_make_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(Failure, match="cannot be used") as failed:
        KubernetesApi.of(file)
    assert "hyperpod kubeconfig" in failed.value.hint


ANSWERS = {
    401: (Exit.CANNOT_KNOW, "hyperpod:teams"),
    403: (Exit.CANNOT_KNOW, "namespace of your team"),
    422: (Exit.FAILED, ""),
}


@pytest.mark.parametrize("status", ANSWERS)
def test_what_the_api_refuses_reads_as_a_message(status: int) -> None:
    code, hint = ANSWERS[status]
    error = ApiException(status=status, reason="no")
    error.body = json.dumps({"message": "spec.nodes is unknown"})
    with pytest.raises(Failure) as failed, _in_our_terms("Job a in b"):
        raise error
    assert failed.value.code == code
    assert hint in failed.value.hint


def test_an_api_out_of_reach_names_the_configuration_key() -> None:
    with pytest.raises(Failure) as failed, _in_our_terms("pods"):
        raise urllib3.exceptions.NewConnectionError(None, "refused")  # type: ignore[arg-type]
    assert "hyperpod:kubernetesApiCidrs" in failed.value.hint


class Noting(FakeApi):
    """Keeps what it was given."""

    def apply(self, document: dict[str, Any], *, dry_run: bool = False) -> None:
        super().apply(document, dry_run=dry_run)
        self.last = document


def command(monkeypatch: pytest.MonkeyPatch, folder: Path, api: FakeApi, *words: str) -> int:
    file = folder / "kubeconfig"
    file.write_text("{}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(KubernetesApi, "of", lambda _: api)
    return cli.main(["job", "run", "eks-gpu", *words, "--kubeconfig", str(file)])


@pytest.mark.parametrize("name", ["", "run", "print"])
def test_help_has_an_example_and_no_title_is_cut(name: str) -> None:
    said = " ".join(ended(Exit.GOOD, "job", *filter(None, [name]), "--help")[0].split())
    assert f"hyperpod job {name or 'run'} eks-gpu nanogpt" in said
    if not name:
        assert all(job.title in said for job in JOBS.values())


def test_what_is_kept_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = Noting(NAMESPACE, says="iter 10: loss 2.5, 3 ms")
    assert command(monkeypatch, tmp_path, api, "nanogpt", "--keep") == Exit.GOOD
    assert api.deleted == []


@pytest.mark.parametrize(
    ("name", "charts", "told"),
    [
        ("nanogpt", {}, True),
        ("nanogpt", {"queues": "task-governance"}, False),
        ("nanogpt", {"jobAutoRestart": False}, False),
        ("nccl-tests", {}, False),
    ],
)
def test_it_is_told_where_hyperpod_does_not_resume_a_job(
    name: str,
    charts: dict[str, object],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SageMaker Developer Guide, "Running jobs using the SageMaker HyperPod CLI", on auto-resume."""
    monkeypatch.setattr("operations.target.checked", lambda values: config("eks-gpu", charts=charts))
    where = {**NAMESPACE, "metadata": {"name": "hyperpod-ns-training"}} if "queues" in charts else NAMESPACE
    assert command(monkeypatch, tmp_path, Noting(where), name, "--no-wait") == Exit.GOOD
    assert ("HyperPod resumes jobs only" in " ".join(capsys.readouterr().err.split())) is told


def test_a_test_that_nobody_waits_for_has_its_own_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for wait, seconds in (("--no-wait", 3600), ("--wait", 5)):
        api = Noting(NAMESPACE, says=NCCL.format(busbw=380.0))
        assert command(monkeypatch, tmp_path, api, "nccl-tests", wait, "--timeout", "5") == Exit.GOOD
        assert api.last["spec"]["runPolicy"]["activeDeadlineSeconds"] == seconds


def test_a_job_is_judged_by_the_group_it_ran_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = {"hopper": "ml.p5.48xlarge", "ampere": "ml.g5.48xlarge"}
    workers = [{"name": name, "instanceType": kind, "count": 2 + (name == "ampere")} for name, kind in types.items()]
    monkeypatch.setattr("operations.target.checked", lambda values: config("eks-gpu", workers=workers))
    api = Noting(NAMESPACE, says="PASS\nPASS", condition="Complete")
    assert command(monkeypatch, tmp_path, api, "device-check", "--group", "ampere") == Exit.FAILED
    assert "2 of 3 nodes see all of their devices" in capsys.readouterr().err


def test_a_bandwidth_test_that_failed_fails_whatever_it_measured() -> None:
    result = run("nccl-tests", NCCL.format(busbw=380.0) + "out of memory\n", "Failed")
    assert (result.passed, result.reasons) == (False, ("the job failed: out of memory",))


def test_what_a_job_said_in_the_end_is_heard_though_it_has_ended() -> None:
    objects, api = render("nanogpt", config("eks-gpu")), FakeApi(NAMESPACE, says="iter 10: loss 2.5, 3 ms")
    job_run.submit(api, objects)
    api.heard = True
    assert job_run.follow(api, objects, lambda _: None, lambda _: None, 10, pause=0) == (True, api.says)


def test_a_log_is_read_again_some_seconds_back_so_that_no_line_is_missed() -> None:
    objects, api = render("nanogpt", config("eks-gpu")), Recovering()
    job_run.submit(api, objects)
    job_run.follow(api, objects, lambda _: None, lambda _: None, 10, pause=0)
    assert min(seconds for seconds in api.asked if seconds is not None) >= 10


def test_a_job_waits_for_nodes_only_where_none_of_its_pods_has_one() -> None:
    unplaced, placed = pod("a", {}), pod("b", {})
    unplaced["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient nvidia.com/gpu"}],
    }
    done = {**placed, "status": {"phase": "Succeeded"}}
    assert job_run._queued([])
    assert job_run._queued([unplaced, done])
    assert not job_run._queued([unplaced, placed])
    assert not job_run._queued([done])

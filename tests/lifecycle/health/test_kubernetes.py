"""What Kubernetes is told about a bad node of EKS, by policy; and what is never touched."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hyperpod_node.health import kubelet
from hyperpod_node.health import run as health
from hyperpod_node.health.kubernetes import BOOT, BOOT_ID, SETUP
from hyperpod_node.host.host import Result

from tests.lifecycle.health.fake_kubernetes import KUBECONFIG, STATUS, TOKEN, Kubernetes, serve
from tests.lifecycle.health.rig import prepare, put, well
from tests.lifecycle.rig import FakeHost, World

ME = "hyperpod-i-0123456789abcdef0"
REASON = "accelerators: 7 of 8 devices /dev/nvidia*"
OURS = {"hyperpod-health/reason": REASON}
JOB = {
    "metadata": {"ownerReferences": [{"kind": "PyTorchJob"}]},
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
    "status": {"phase": "Running"},
}
AGENT = {**JOB, "metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}
OPERATOR = {**JOB, "spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}
ENDED = {**JOB, "status": {"phase": "Succeeded"}}


@pytest.fixture
def kubernetes(host: FakeHost) -> Iterator[Kubernetes]:
    found = Kubernetes(ME)
    found.add(ME)
    for number in range(3):
        found.add(f"other-{number}")
    with serve(found):
        put(host, kubelet.KUBECONFIG, KUBECONFIG.format(server=found.url))
        put(host, "/etc/kubernetes/pki/ca.crt")
        host.path("/etc/kubernetes/pki/ca.crt").write_bytes(_authority())
        host.commands["aws-iam-authenticator"] = lambda _, args, __: Result(
            0 if tuple(args[1:]) == ("token", "-i", "mine", "--region", "us-west-2") else 2,
            json.dumps({"kind": "ExecCredential", "status": {"token": TOKEN}}),
            "no credentials",
        )
        with_policy(host, "drain")
        well(host)
        yield found


def _authority() -> bytes:
    import ssl
    from pathlib import Path

    # One of them: OpenSSL takes a tenth of a second for all.
    every = Path(ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt").read_bytes()
    first, end, _ = every.partition(b"-----END CERTIFICATE-----")
    return first + end + b"\n"


def with_policy(host: FakeHost, name: str, **more: Any) -> None:
    host.world.render(orchestrator="eks", healthPolicy=name, **more)
    prepare(host)


def lose_a_gpu(host: FakeHost) -> None:
    host.path("/dev/nvidia3").unlink(missing_ok=True)


def once(host: FakeHost) -> str:
    health.once(host)
    return str(json.loads(host.text(health.RESULTS))["done"])


def test_a_bad_node_cordons_itself_and_uncordons_itself_when_it_is_well(host: FakeHost, kubernetes: Kubernetes) -> None:
    assert once(host) == "nothing to do"
    lose_a_gpu(host)
    assert once(host) == "cordoned"
    assert kubernetes.own["spec"] == {"unschedulable": True}
    assert kubernetes.own["metadata"]["annotations"] == OURS
    # Once is enough, and the label is for other policies.
    assert once(host) == "cordoned"
    assert len(kubernetes.changes) == 1
    assert kubernetes.own["metadata"]["labels"][STATUS] == "Schedulable"
    put(host, "/dev/nvidia3")
    assert once(host) == "uncordoned: all is well again"
    assert kubernetes.own["spec"] == {}
    assert kubernetes.own["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("policy", "label"), [("reboot", "UnschedulablePendingReboot"), ("replace", "UnschedulablePendingReplacement")]
)
def test_an_idle_node_gets_hyperpods_label_once_and_then_is_hyperpods(
    host: FakeHost, kubernetes: Kubernetes, policy: str, label: str
) -> None:
    with_policy(host, policy)
    lose_a_gpu(host)
    kubernetes.pods = [AGENT, OPERATOR, JOB]
    assert [once(host), once(host)] == ["cordoned", "cordoned"]
    assert kubernetes.own["metadata"]["labels"][STATUS] == "Schedulable"
    kubernetes.pods = [AGENT, OPERATOR, ENDED]
    assert once(host) == f"cordoned and idle: {label}"
    assert kubernetes.own["metadata"]["labels"][STATUS] == label
    put(host, "/dev/nvidia3")
    assert once(host) == f"left to HyperPod: {label}"
    # HyperPod has rebooted it, and it is as bad as before.
    kubernetes.own["metadata"]["labels"][STATUS] = "Schedulable"
    lose_a_gpu(host)
    assert once(host) == f"cordoned: {label} has not helped"
    put(host, "/dev/nvidia3")
    assert once(host) == "uncordoned: all is well again"
    assert kubernetes.own["metadata"]["annotations"] == {}


def test_report_touches_nothing(host: FakeHost, kubernetes: Kubernetes) -> None:
    with_policy(host, "report")
    lose_a_gpu(host)
    assert once(host) == "only reported, by policy"
    assert kubernetes.changes == []


@pytest.mark.parametrize(
    ("node", "done"),
    [
        ({"unschedulable": True}, "left to whoever has cordoned it"),
        ({"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}, "left to whoever has tainted it: maintenance"),
        ({"labels": {STATUS: "Unschedulable"}}, "left to HyperPod: Unschedulable"),
        (
            {"labels": {STATUS: "UnschedulablePendingReplacement"}, "unschedulable": True, "annotations": OURS},
            "left to HyperPod: UnschedulablePendingReplacement",
        ),
    ],
)
@pytest.mark.parametrize("bad", [True, False])
def test_what_others_have_taken_out_is_not_touched_be_it_well_or_bad(
    host: FakeHost, kubernetes: Kubernetes, node: dict[str, Any], done: str, bad: bool
) -> None:
    with_policy(host, "replace")
    kubernetes.add(ME, **node)
    if bad:
        lose_a_gpu(host)
    assert once(host) == done
    assert kubernetes.changes == []


def test_the_groups_own_taints_and_kubernetes_are_no_reason_to_leave_a_node_alone(
    host: FakeHost, kubernetes: Kubernetes
) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    tainted = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2, "taints": [taint]}
    with_policy(host, "drain", workers=[tainted, {"name": "system", "instanceType": "ml.m5.xlarge"}])
    kubernetes.add(ME, taints=[{"key": "team"}, {"key": "node.kubernetes.io/memory-pressure"}])
    lose_a_gpu(host)
    assert once(host) == "cordoned"


@pytest.mark.parametrize(
    "other", [{"annotations": OURS, "unschedulable": True}, {"labels": {STATUS: "UnschedulablePendingReboot"}}]
)
def test_only_one_node_or_five_percent_are_out_at_a_time(
    host: FakeHost, kubernetes: Kubernetes, other: dict[str, Any]
) -> None:
    kubernetes.add("other-0", **other)
    lose_a_gpu(host)
    assert once(host) == "only reported: 1 of 4 nodes are out already (other-0)"
    assert kubernetes.changes == []
    for number in range(3, 39):
        kubernetes.add(f"other-{number}")
    assert once(host) == "cordoned"


def test_of_two_nodes_that_go_at_once_the_later_one_comes_back(host: FakeHost, kubernetes: Kubernetes) -> None:
    lose_a_gpu(host)
    kubernetes.others_act = lambda: kubernetes.add("other-0", unschedulable=True, annotations=OURS)
    assert once(host).startswith("only reported: 1 of 4 nodes are out already")
    assert len(kubernetes.changes) == 2
    assert kubernetes.own["spec"] == {}
    assert kubernetes.own["metadata"]["annotations"] == {}


def test_a_node_that_somebody_has_changed_meanwhile_is_not_touched(host: FakeHost, kubernetes: Kubernetes) -> None:
    lose_a_gpu(host)
    kubernetes.others_act = lambda: kubernetes.own["metadata"].update(resourceVersion="7")
    assert once(host) == f"Kubernetes (PATCH /api/v1/nodes/{ME}) refuses: the object has been modified"
    assert kubernetes.changes == []


def test_whoever_uncordons_a_node_accepts_the_xids_so_far(host: FakeHost, kubernetes: Kubernetes) -> None:
    put(host, "/dev/kmsg", "3,1,10,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.\n")
    assert once(host) == "cordoned"
    del kubernetes.own["spec"]["unschedulable"]
    assert once(host) == "uncordoned by somebody: checked again in the next run"
    assert once(host) == "nothing to do"
    assert kubernetes.own["metadata"]["annotations"] == {}


def test_hyperpod_uncordons_what_it_has_rebooted_and_accepts_nothing_by_that(
    host: FakeHost, kubernetes: Kubernetes
) -> None:
    with_policy(host, "reboot")
    put(host, BOOT_ID, "first\n")
    lose_a_gpu(host)
    assert [once(host), once(host)] == ["cordoned", "cordoned and idle: UnschedulablePendingReboot"]
    assert kubernetes.own["metadata"]["annotations"][BOOT] == "first"
    # Its bootstrap clears the cordon.
    kubernetes.own["metadata"]["labels"][STATUS] = "Schedulable"
    del kubernetes.own["spec"]["unschedulable"]
    put(host, BOOT_ID, "second\n")
    assert [once(host), once(host)] == ["cordoned", "cordoned: UnschedulablePendingReboot has not helped"]
    assert kubernetes.own["spec"] == {"unschedulable": True}
    # Whoever uncordons it now has looked at it.
    del kubernetes.own["spec"]["unschedulable"]
    assert once(host) == "uncordoned by somebody: checked again in the next run"
    assert kubernetes.own["metadata"]["annotations"] == {}


def test_a_node_that_a_reboot_has_helped_is_as_if_nothing_had_been(host: FakeHost, kubernetes: Kubernetes) -> None:
    with_policy(host, "reboot")
    put(host, BOOT_ID, "first\n")
    lose_a_gpu(host)
    assert [once(host), once(host)][-1] == "cordoned and idle: UnschedulablePendingReboot"
    kubernetes.own["metadata"]["labels"][STATUS] = "Schedulable"
    del kubernetes.own["spec"]["unschedulable"]
    put(host, BOOT_ID, "second\n")
    put(host, "/dev/nvidia3")
    assert [once(host), once(host)] == ["uncordoned: all is well again", "nothing to do"]
    assert kubernetes.own["metadata"]["annotations"] == {}


def test_a_node_says_what_its_boot_left_undone_and_stays_in_service(host: FakeHost, kubernetes: Kubernetes) -> None:
    def booted(result: str, detail: str = "", *warnings: str) -> None:
        step = {"name": "pod-disk", "result": result, "detail": detail, "warnings": warnings}
        done = {"name": "scratch", "result": "skipped", "detail": "no instance store", "warnings": []}
        put(host, "/var/log/hyperpod/summary.json", json.dumps({"steps": [done, step]}))

    metadata = kubernetes.own["metadata"]
    assert once(host) == "nothing to do"
    assert kubernetes.changes == []
    booted("failed", "/opt/sagemaker is instance store: containerd and kubelet stay on the root volume")
    # Told once.
    assert [once(host), once(host)] == ["nothing to do", "nothing to do"]
    assert metadata["labels"][SETUP] == "incomplete"
    said = "pod-disk: /opt/sagemaker is instance store: containerd and kubelet stay on the root volume"
    assert metadata["annotations"][SETUP] == said
    (event,) = kubernetes.events
    assert (event["reason"], event["message"], event["involvedObject"]["name"]) == ("SetupIncomplete", said, ME)
    assert event["firstTimestamp"] == "2026-09-21T14:30:00Z"
    assert kubernetes.own["spec"] == {}
    # For `hyperpod node health` and the alert HealthCheckFailing.
    assert json.loads(host.text(health.RESULTS))["checks"]["setup"] == {"status": "bad", "detail": said}
    assert host.text(health.REASON) == ""
    # Somebody has made room for it, and it is bad for another reason in the same run.
    booted("degraded", "moved", "slow")
    lose_a_gpu(host)
    assert once(host) == "cordoned"
    assert metadata["annotations"][SETUP] == "pod-disk: slow"
    assert len(kubernetes.events) == 2
    put(host, "/dev/nvidia3")
    booted("ok")
    assert once(host) == "uncordoned: all is well again"
    assert (metadata["labels"][SETUP], metadata["annotations"]) == ("complete", {})
    assert len(kubernetes.events) == 2


def test_a_node_without_a_credential_or_with_a_wrong_one_says_so_and_files_what_it_found(
    host: FakeHost, kubernetes: Kubernetes
) -> None:
    lose_a_gpu(host)
    host.commands["aws-iam-authenticator"] = lambda *_: Result(0, json.dumps({"status": {"token": "other"}}))
    assert once(host).endswith("refuses: Unauthorized")
    host.commands["aws-iam-authenticator"] = lambda *_: Result(1, json.dumps({"status": {"token": "other"}}), "denied")
    assert once(host) == "`aws-iam-authenticator` ended with 1: denied"
    whole = KUBECONFIG.format(server="https://127.0.0.1:1")
    for key in ("server", "certificate-authority", "command"):
        put(host, kubelet.KUBECONFIG, re.sub(rf"^.*\b{key}: .*\n", "", whole, flags=re.MULTILINE))
        said = "/var/lib/kubelet/kubeconfig names no server, certificate-authority and command of a credential"
        assert once(host) == said, key
    host.path(kubelet.KUBECONFIG).unlink()
    assert once(host).startswith("no /var/lib/kubelet/kubeconfig")
    assert host.text(health.REASON) == f"{REASON}\n"
    assert "other" not in host.text(health.RESULTS)


def test_newer_images_ask_the_aws_command_for_the_token(host: FakeHost, world: World) -> None:
    newer = (
        KUBECONFIG.replace("aws-iam-authenticator", "aws").replace('"token"', '"eks"').replace('"-i"', '"get-token"')
    )
    put(host, kubelet.KUBECONFIG, newer.format(server="http://127.0.0.1:1"))
    put(host, "/etc/kubernetes/pki/ca.crt")
    host.path("/etc/kubernetes/pki/ca.crt").write_bytes(_authority())
    asked = []

    def aws(_: FakeHost, args: Any, __: str | None) -> Result:
        asked.append(list(args))
        return Result(0, json.dumps({"status": {"token": TOKEN}}))

    host.commands["aws"] = aws
    assert kubelet.connect(host).token == TOKEN
    assert asked == [["aws", "eks", "get-token", "mine", "--region", "us-west-2"]]

"""A run's processes end with it, and pods see what a kubelet would give them."""

import io
import json
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.kubernetes import training
from rehearsal.kubernetes.certificates import Authority
from rehearsal.kubernetes.container import Mount, available, command_line
from rehearsal.kubernetes.pods import _events, has_process, operator_of
from rehearsal.kubernetes.processes import Processes, free_ports

ROOT = Path(__file__).parents[3]
needs_namespaces = pytest.mark.skipif(not available(), reason="this machine makes no mount namespaces")


def test_processes_end_even_when_they_ignore_the_first_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehearsal.kubernetes.processes._GRACE_SECONDS", 0.1)
    processes = Processes(tmp_path)
    process = processes.start("deaf", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"])
    while "up" not in process.last_words():
        time.sleep(0.02)
    processes.stop_all()
    assert process.code == -9
    assert processes.running == []


def test_the_last_words_of_a_process_are_kept(tmp_path: Path) -> None:
    process = Processes(tmp_path).start("talker", ["sh", "-c", "echo one; echo two; exit 3"])
    process.popen.wait(10)
    assert (process.code, process.last_words(1)) == (3, "two")


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(5))) == 5


@needs_namespaces
def test_a_container_sees_its_volumes_and_not_the_machine(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "file").write_text("content")
    mounts = [Mount(volume, "/data"), Mount(volume / "file", "/config.yaml")]
    line = command_line(
        tmp_path / "root", mounts, ["sh", "-c", "cat /data/file /config.yaml; ls -d /home /data; exit 7"]
    )
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("contentcontent")
    assert "/home" not in done.stdout
    assert list((tmp_path / "root").iterdir()) == []


def test_keys_are_readable_only_by_their_owner_and_certificates_are_valid_for_the_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server(["127.0.0.1"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(certificate, key)
    user, _ = authority.client("system:kube-scheduler", "group")
    decoded = ssl._ssl._test_decode_cert(str(user))  # type: ignore[attr-defined]
    assert (("commonName", "system:kube-scheduler"),) in decoded["subject"]
    assert (("organizationName", "group"),) in decoded["subject"]


@pytest.mark.parametrize("indent", [None, 4])
def test_events_are_read_as_soon_as_they_are_whole(indent: int | None) -> None:
    events = [{"type": kind, "object": {"kind": "Pod"}} for kind in ("ADDED", "DELETED")]
    text = "".join(f"{json.dumps(event, indent=indent)}\n" for event in events)
    assert list(_events(io.StringIO(text))) == events


@pytest.mark.parametrize("kind", ["ERROR", "", "MODIFIED"])
def test_the_status_that_ends_a_slow_watch_is_no_pod(kind: str) -> None:
    status = f'{{"type": "{kind}", "object": {{"kind": "Status", "metadata": {{}}}}}}\n'
    text = '{"type": "ADDED", "object": {"kind": "Pod"}}\n' + status
    assert [event["type"] for event in _events(io.StringIO(text))] == ["ADDED"]


def test_only_operators_and_labelled_pods_have_processes() -> None:
    def pod(**labels: str) -> dict[str, object]:
        return {"metadata": {"name": "p", "labels": labels}}

    operator = operator_of(pod(**{"control-plane": "kubeflow-training-operator"}))
    assert operator is not None
    assert operator.program == "training-operator"
    assert has_process(pod(**{"rehearsal.hyperpod/process": "true"}))
    assert not has_process(pod(app="something"))


def test_a_machine_without_pytorch_is_told_what_training_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "PYTHON", "/nowhere/python3")
    assert training.lacking() == "/nowhere/python3 has no PyTorch (on Debian: apt-get install python3-torch)"


@needs_namespaces
def test_a_run_has_its_own_network_with_an_address_for_endpoints() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        script = f"import socket; socket.create_server(('198.18.0.1', {port})); print('free')"
        command = [sys.executable, "-m", "rehearsal.kubernetes.network", sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "free", done.stderr

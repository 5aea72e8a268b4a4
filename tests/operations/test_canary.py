"""Secrets stay where they are: planted in every place that a deployment reads one from, none turns up anywhere else.

The places: the environment (credentials of AWS and of Pulumi, the state's passphrase, tokens of model hubs and
registries), the stack's file, and what AWS answers. The program keeps no secret of its own: it refuses a configuration
that has one. A node's private key never leaves the cluster (tests/lifecycle/people/test_ssh_keys.py), and a job's token
stays in its Secret (tests/operations/test_jobs.py).
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.cli import main as operate
from operations.engine.state import State, texts
from operations.failures import Exit
from rehearsal.account import Account
from rehearsal.engines import eks_component
from rehearsal.engines.deployment import destroy, refresh, up
from tests.golden.stacks import deployed
from tests.operations.aws import run
from tests.rehearsal.command import main as rehearse
from tests.support import ROOT, few_files, project

CANARY = "canary-7f3e91"
# Every variable from which Pulumi, boto3, the AWS CLI, Helm, Docker or a model hub takes a secret.
ENVIRONMENT = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "PULUMI_ACCESS_TOKEN",
    "PULUMI_CONFIG_PASSPHRASE",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "GITHUB_TOKEN",
    "GRAFANA_TOKEN",
    "REGISTRY_PASSWORD",
)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The secrets, in the environment and in what EKS answers; and what other processes' command lines were."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    written = eks_component._kubeconfig

    def with_token(*words: Any) -> dict[str, Any]:
        found = written(*words)
        found["users"][0]["user"]["token"] = f"{CANARY}-kubeconfig"
        return found

    monkeypatch.setattr(eks_component, "_kubeconfig", with_token)
    seen: list[str] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(seen, done))
    watcher.start()
    with few_files():
        yield seen
    done.set()
    watcher.join()


def _watch(seen: list[str], done: threading.Event) -> None:
    """Note the command line of every process of this machine that one can see."""
    while not done.wait(0.3):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue


def in_clear(state: State) -> list[str]:
    """Where a state has a planted secret in clear: Pulumi encrypts what is marked as a secret, and nothing else."""
    return [
        f"{resource.name} ({resource.type}) {kind} {key}"
        for resource in state.values()
        for kind, values in (("inputs", resource.inputs), ("outputs", resource.outputs))
        for key, value in values.items()
        if key not in resource.secrets and any(CANARY in text for text in texts(value))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["dev", "eks-gpu"])
def test_nothing_that_is_printed_or_reported_has_a_secret(
    stack: str, planted: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report, found = tmp_path / "report.html", tmp_path / "found.json"
    words = [stack, "--report", str(report), "--write", str(found)]
    assert rehearse(words) == Exit.GOOD
    printed = "".join(capfd.readouterr())
    assert report.stat().st_size > 10_000
    told = [text for text in (printed, report.read_text(), found.read_text(), *planted) if CANARY in text]
    assert told == []


@pytest.mark.slow
def test_the_state_has_no_secret_but_the_kubeconfig_which_is_marked(planted: list[str]) -> None:
    """pulumi-eks's component cannot mark its output (pulumi/pulumi#11545): its kubeconfig has no token on AWS."""
    with Account("us-west-2") as account:
        deployment = up(project("eks-gpu"), account)
        assert not deployment.failure
        refresh(deployment.state, account)
        left = in_clear(deployment.state)
        assert {"kubeconfig"} == deployment.secret_outputs
        assert CANARY in str(deployment.outputs["kubeconfig"])
        assert [one for one in left if "(eks:index:Cluster)" not in one and "eks-k8s" not in one] == []
        assert [text for live in account.live.values() for text in texts(live.outputs) if CANARY in text] == []
        assert destroy(deployment.state, account) == []


VERBS = (
    ("deploy", "dev", "--rehearse", "--yes"),
    ("deploy", "eks-gpu", "--rehearse", "--yes"),
    ("cost", "dev"),
    ("policy", "dev", "--account", "123456789012"),
)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_prints_one(verb: tuple[str, ...], planted: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    for form in ((), ("--json",)):
        assert operate((*verb, *form)) == Exit.GOOD
    assert CANARY not in "".join(capfd.readouterr())


def test_what_eks_hands_out_has_no_credential() -> None:
    """Neither a token, nor a password, nor a client's key: kubectl asks the AWS CLI for one each time."""
    user = json.loads(str(deployed("eks-gpu").outputs["kubeconfig"]))["users"][0]["user"]
    assert user.keys() == {"exec"}


def test_the_program_refuses_what_pulumi_decrypted_for_it() -> None:
    """As the CLI starts it: the value in clear, and its key among the secret ones."""
    code = "from components.config import load; load()"
    config = {"aws:region": "us-west-2", "hyperpod:clusterName": CANARY}
    environment = {
        **os.environ,
        "PULUMI_CONFIG": json.dumps(config),
        "PULUMI_CONFIG_SECRET_KEYS": json.dumps(["hyperpod:clusterName"]),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'lifecycle'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "hyperpod:clusterName: must not be a secret" in done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_a_problem_of_a_verb_does_not_print_one(planted: list[str]) -> None:
    code, out, err = run("node", "list", "dev")
    assert code != Exit.GOOD
    assert CANARY not in out + err

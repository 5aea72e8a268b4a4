"""What the Tab key offers, asked as the shells ask."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hyperpod
from operations import completion
from operations.aws import Aws
from operations.project import stack_names
from tests.operations.aws import RefusingAws, StubbedAws, cluster
from tests.rows import each
from tests.support import ROOT

described = cache(hyperpod.described)
make_command, made = completion.command, dict[tuple[str, ...], Any]()


def command(known: Mapping[str, Any]) -> Any:
    """Made once for the same verbs."""
    verbs = tuple(known["tree"]["commands"])
    if verbs not in made:
        made[verbs] = make_command(known)
    return made[verbs]


@pytest.fixture
def tab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Presses Tab after a line, and returns the words that the shell is offered."""
    monkeypatch.setattr(completion, "FOLDER", str(tmp_path))
    monkeypatch.setattr(completion, "command", command)
    monkeypatch.delenv("HYPERPOD_STACK", raising=False)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def press(line: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("_HYPERPOD_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", line.replace(" ", "\n"))
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit) as ended:
            completion.main(described)
        assert ended.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return press


STACKS = stack_names(ROOT)


@each(
    (
        ("hyperpod de", ["deploy", "destroy"]),
        ("hyperpod cost ", STACKS),
        ("hyperpod cost dev eks", ["eks-gpu", "eks-trainium"]),
        ("hyperpod cost -o ", ["json", "yaml", "wide"]),
        ("hyperpod deploy dev --re", ["--rehearse"]),
        ("hyperpod scale eks-gpu ", ["workers", "system"]),
        ("hyperpod node update-software dev --group ", ["workers"]),
        ("hyperpod explain auth", ["authenticationMode"]),
        ("hyperpod explain fsx.st", ["fsx.storageGiB"]),
        ("hyperpod explain kubernetesA", ["kubernetesApiCidrs"]),
        ("hyperpod explain HP012", ["HP012"]),
        ("hyperpod explain hp012", ["hp012"]),
        ("hyperpod types p5e", ["p5e.48xlarge", "p5en.48xlarge"]),
        ("hyperpod init x --instance-type ml.trn1", ["ml.trn1.32xlarge", "ml.trn1n.32xlarge"]),
        ("hyperpod init x --region us-w", ["us-west-1", "us-west-2"]),
        ("hyperpod init x --zone usw2-az1", ["usw2-az1"]),
        ("hyperpod job run eks-gpu nccl", ["nccl-tests"]),
        ("hyperpod assumptions --id slurm-v", ["slurm-version"]),
        ("hyperpod rehearse d", ["deployment", "drill", "dev"]),
        ("hyperpod rehearse dev --en", ["--engine"]),
        ("hyperpod rehearse dev --engine ", ["embedded", "pulumi"]),
        ("hyperpod cost dev --config observability.", [""]),
        ("hyperpod cost dev --config kubernetesA", ["kubernetesApiCidrs="]),
        ("hyperpod cost dev --config orch", ["orchestrator=slurm", "orchestrator=eks"]),
        ("hyperpod cost dev --config s", ["security=", "size=", "slurm=", "sshPublicKey="]),
        ("hyperpod cost dev --config size = l", ["large"]),
        ("hyperpod cost dev --config protect =", ["true", "false"]),
        ("hyperpod deploy dev --rehearse -c availabilityZoneId = usw2-az1", ["usw2-az1"]),
        ("hyperpod rehearse dev --config size = m", ["medium"]),
        ("hyperpod rehearse dev --then size = m", ["medium"]),
        ("hyperpod rehearse nodes s", ["slurm-gpu", "slurm-trainium"]),
    )
)
def test_a_word_is_completed_by_what_can_come_next(
    line: str, expected: list[str], tab: Callable[..., list[str]]
) -> None:
    assert sorted(tab(line)) == sorted(expected)


@each(
    (
        ("zsh", "explain fsx.ef", '"fsx.efa":"'),
        ("fish", "explain fsx.ef", "fsx.efa\t"),
        ("zsh", "cost dev --config size=l", '"size=large":"'),
        ("fish", "cost dev --config size=l", "size=large\t"),
    )
)
def test_every_shell_is_answered_with_the_meaning(
    shell: str, line: str, said: str, tab: Callable[..., list[str]]
) -> None:
    assert said in "\n".join(tab(f"hyperpod {line}", shell))


def test_a_variable_names_the_stack(tab: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERPOD_STACK", "eks-gpu")
    assert tab("hyperpod scale s") == ["system"]


def test_nodes_are_asked_of_aws_once_in_two_minutes(
    tab: Callable[..., list[str]], aws: StubbedAws, tmp_path: Path
) -> None:
    node = {
        "InstanceGroupName": "workers", "InstanceId": "i-0123456789abcdef0", "InstanceType": "ml.g5.16xlarge",
        "LaunchTime": "2026-11-01T00:00:00Z", "InstanceStatus": {"Status": "Running"},
    }  # fmt: skip
    aws.answer("sagemaker", "describe_cluster", cluster("InService"))
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node]})
    for _ in range(2):
        assert tab("hyperpod node connect dev w") == ["workers-1"]
    aws.assert_all_asked()
    old = time.time() - completion.LASTING - 1
    os.utime(tmp_path / "dev" / "nodes.json", (old, old))
    # The account answers no more: the groups are left.
    assert tab("hyperpod node connect dev ") == ["controller", "workers"]


@each(("AccessDeniedException", "ExpiredToken", "ResourceNotFound"))
def test_where_aws_says_nothing_the_groups_are_offered_in_silence(
    code: str, tab: Callable[..., list[str]], refusing: Callable[..., RefusingAws], on: Callable[[Aws], None]
) -> None:
    on(refusing(code))
    assert tab("hyperpod node exec eks-gpu ") == ["workers", "system"]
    assert tab("hyperpod node exec nosuch ") == [""]


def test_aws_is_waited_for_no_longer_than_a_moment(
    tab: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "PATIENCE", 0.05)
    monkeypatch.setattr("operations.target.load", lambda *_: time.sleep(30))
    began = time.monotonic()
    assert tab("hyperpod node connect dev ") == ["controller", "workers"]
    assert time.monotonic() - began < 5


def test_the_file_is_written_again_once_the_code_has_changed(
    tab: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completion.json"
    tab("hyperpod de")
    known = json.loads(file.read_text())
    known["tree"]["commands"]["develop"] = known["tree"]["commands"]["deploy"]
    file.write_text(json.dumps(known))
    assert "develop" in tab("hyperpod de")
    file.write_text(json.dumps(known | {"state": 1}))
    assert "develop" not in tab("hyperpod de")
    file.write_text("no JSON")
    assert tab("hyperpod dest") == ["destroy"]
    # Where it cannot be written there is still an answer.
    monkeypatch.setattr(completion, "FOLDER", "/proc/nowhere")
    assert tab("hyperpod dest") == ["destroy"]


def test_a_tab_imports_neither_the_sdks_nor_the_verbs(tmp_path: Path) -> None:
    script = (
        "import sys, hyperpod; from operations import completion; completion.FOLDER = sys.argv[1]\n"
        "try: hyperpod.run()\n"
        "except SystemExit: pass\n"
        "print({'pulumi', 'boto3', 'requests', 'operations.cli', 'components'} & {*sys.modules})"
    )
    (tmp_path / "completion.json").write_text(json.dumps({"state": completion.state(), **described()}))
    told = {"_HYPERPOD_COMPLETE": "complete_bash", "COMP_WORDS": "hyperpod\nexplain\nfsx.ef", "COMP_CWORD": "2"}
    words = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **told}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["fsx.efa", "set()"]

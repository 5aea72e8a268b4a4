"""What people get of AWS by the node's role: what is named for them, and nothing else."""

import base64
import json
import os
import pwd
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hyperpod_node.facts.model import Mlflow
from hyperpod_node.host import aws_cli, units
from hyperpod_node.host.errors import Skip, StepError
from hyperpod_node.host.host import Result
from hyperpod_node.people import credentials

from tests.lifecycle.rig import FakeHost, World

KEY = {"AccessKeyId": "ASIA1", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": "2026-01-01T00:00:00Z"}
ROLE = "arn:aws:iam::123456789012:role/hyperpod/mine/"
MLFLOW = Mlflow(app="arn:aws:sagemaker:us-west-2:123456789012:mlflow-app/app-1", role=f"{ROLE}mine-mlflow-job")


@pytest.fixture
def host(world: World) -> FakeHost:
    found = world.node("worker")
    found.remember()
    found.commands["aws"] = aws
    return found


def aws(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    """The workers' role may assume one role and read one secret."""
    words = {"get-caller-identity": {"Arn": "arn:aws:sts::123456789012:assumed-role/worker/i-1"}}
    words["get-authorization-token"] = {
        "authorizationData": [{"authorizationToken": base64.b64encode(b"AWS:pass").decode()}]  # type: ignore[dict-item]
    }
    if args[2] == "assume-role":
        assert args[args.index("--role-session-name") + 1] == "hyperpod-research1"
        if args[args.index("--role-arn") + 1] not in (ROLE + "research1", MLFLOW.role):
            return Result(254, "", "An error occurred (AccessDenied) when calling the AssumeRole operation: no")
        return Result(0, json.dumps({"Credentials": KEY}))
    if args[2] == "get-secret-value":
        return Result(0, json.dumps({"SecretString": "token"}))
    return Result(0, json.dumps(words[args[2]]))


def test_a_role_is_given_to_whom_it_is_named_for(host: FakeHost) -> None:
    found = credentials.answer(host, "research1", ["team"], "role research1")
    assert json.loads(found) == {"Version": 1, **KEY}


def test_a_role_of_a_group_is_asked_for_by_its_members(host: FakeHost) -> None:
    with pytest.raises(aws_cli.Refused, match="AccessDenied"):
        credentials.answer(host, "research1", ["team"], "role team")


@pytest.mark.parametrize(
    "question",
    ["role research2", "role ../research1", "role research1/x", "role", "secret rds!db-1", "secret hyperpod/other/x",
     "secret hyperpod/mine/", "secret arn:aws:secretsmanager:us-west-2:1:secret:x", "ecr --debug", "", "s3 x"],
)  # fmt: skip
def test_whatever_else_is_refused_before_aws_is_asked(host: FakeHost, question: str) -> None:
    with pytest.raises(StepError):
        credentials.answer(host, "research1", ["team"], question)
    assert not host.ran("aws")


def test_secrets_of_the_cluster_and_the_registrys_password_are_everybodys(host: FakeHost) -> None:
    assert credentials.answer(host, "research1", [], "secret hyperpod/mine/hf-token") == "token"
    assert credentials.answer(host, "research1", [], "ecr us-east-1") == "pass"
    assert host.calls[-1][3:5] == ("--region", "us-east-1")


def test_the_role_for_mlflow_is_everybodys_where_the_stack_has_the_app(host: FakeHost) -> None:
    with pytest.raises(StepError):
        credentials.answer(host, "research1", [], "mlflow")
    host.remember(mlflow=MLFLOW)
    assert json.loads(credentials.answer(host, "research1", [], "mlflow")) == {"Version": 1, **KEY}
    with pytest.raises(StepError):
        credentials.answer(host, "research1", [], "mlflow research1")


def test_programs_get_that_role_by_a_file_of_awss_configuration(host: FakeHost) -> None:
    node = host.node()
    credentials.run(node)
    assert not host.path("/etc/hyperpod/mlflow-aws.conf").exists()
    node.parameters_ = replace(node.parameters, mlflow=MLFLOW)
    credentials.run(node)
    said = host.text("/etc/hyperpod/mlflow-aws.conf")
    assert "[default]\nregion = us-west-2\n" in said
    assert "credential_process = /opt/hyperpod/bin/hyperpod-credentials mlflow\n" in said


def test_workers_listen_for_everybody_and_answer_as_root(host: FakeHost, world: World) -> None:
    credentials.run(host.node())
    assert "SocketMode=0666\nAccept=yes" in host.text(f"{units.UNITS}/hyperpod-credentials.socket")
    service = host.text(f"{units.UNITS}/hyperpod-credentials@.service")
    assert "ExecStart=/opt/hyperpod/bin/hyperpod-credentials --answer\nStandardInput=socket" in service
    assert "User=" not in service
    assert "hyperpod-credentials.socket" in host.active & host.enabled
    with pytest.raises(Skip):
        credentials.run(world.node("controller").node())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """A service on this machine that gives whoever asks their name and the question."""
    asked: list[tuple[str, str]] = []

    def given(_: object, user: str, groups: object, question: str) -> str:
        asked.append((user, question))
        if question == "role nobody-s":
            raise StepError("not yours")
        return f"{user}: {question}"

    monkeypatch.setattr(credentials, "ADDRESS", str(tmp_path / "socket"))
    monkeypatch.setattr(credentials, "answer", given)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(credentials.ADDRESS)
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                monkeypatch.setattr(os, "dup", lambda _: peer.detach())
                credentials.main(["--answer"])

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


def test_the_kernel_says_who_asks(here: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    own = pwd.getpwuid(os.getuid()).pw_name
    assert credentials.main(["role", "research1"]) == 0
    assert capsys.readouterr().out == f"{own}: role research1\n"
    assert here == [(own, "role research1")]


def test_a_refusal_is_said_and_ends_with_1(here: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert credentials.main(["role", "nobody-s"]) == 1
    assert capsys.readouterr() == ("", "hyperpod-credentials: not yours\n")


def test_where_nobody_listens_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(credentials, "ADDRESS", "/nowhere/socket")
    assert credentials.main(["ecr", "us-west-2"]) == 1
    assert "No such file" in capsys.readouterr().err

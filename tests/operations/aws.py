"""AWS for the verbs' tests: botocore's Stubber, which checks every request and answer against the service's model."""

import json
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from _pytest.capture import CaptureIO
from botocore.exceptions import BotoCoreError
from botocore.stub import Stubber

import hyperpod
from operations import cli, target
from operations.aws import Aws
from operations.cli import main
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.failures import Exit
from operations.target import Target
from operations.terminal import command_line
from rehearsal.account.requests import action_of
from rehearsal.policy.iam_documents import questions

# The whole command line, with the rehearsal's verbs.
hyperpod.join()
ACCOUNT = "123456789012"
CLUSTER_ID = "abcdef123456"
_SESSION = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test")


@cache
def _client(service: str, region: str, use: str) -> Any:
    """Clients are dear to make; each test puts its own handlers on them and takes them off again."""
    return _SESSION.client(service, region_name=region)


class StubbedAws(Aws):
    """An account that gives the answers it was told, each once and in order, and fails the test on any other call."""

    def __init__(self, region: str = "us-west-2") -> None:
        super().__init__(region)
        self._stubs: dict[str, Stubber] = {}
        self._expected: dict[str, list[dict[str, Any]]] = {}
        self._broken: dict[str, BotoCoreError] = {}
        self.__dict__["account_id"] = ACCOUNT

    def client(self, service: str, region: str | None = None) -> Any:
        """A client whose every request must have been announced; another region's are SERVICE/REGION there."""
        key = service if region in (None, self.region) else f"{service}/{region}"
        if key not in self._clients:
            client = _client(service, region or self.region, "stubbed")
            check = partial(self._check, key)
            client.meta.events.register_first("before-parameter-build.*.*", check, unique_id="check")
            self._stubs[key] = Stubber(client)
            self._stubs[key].activate()
            self._clients[key] = client
        return self._clients[key]

    def answer(self, service: str, operation: str, response: dict[str, Any], **expected: Any) -> None:
        """The next call's answer; ``expected`` are parameters that it must have, all others may be anything."""
        self.client(*service.split("/"))
        self._stubs[service].add_response(operation, response)
        self._expected.setdefault(service, []).append(expected)

    def refuse(self, service: str, operation: str, code: str, message: str = "refused") -> None:
        """The next call fails with this code."""
        self.client(*service.split("/"))
        self._stubs[service].add_client_error(operation, code, message)
        self._expected.setdefault(service, []).append({})

    def break_off(self, service: str, error: BotoCoreError) -> None:
        """Every call of this service fails before it reaches AWS."""
        self._broken[service] = error

    def _check(self, key: str, params: dict[str, Any], model: Any, **_: Any) -> None:
        if error := self._broken.get(key):
            raise error
        action = action_of(model.service_model.service_name, model.name).name
        known = action in questions() or action.startswith("sts:")
        assert known, f"rehearsal/policy/verbs.csv does not have {action}, which a verb asks"
        waiting = self._expected.get(key, [])
        expected = waiting.pop(0) if waiting else {}
        found = {key: params.get(key) for key in expected}
        assert found == expected, f"{model.name}: {found} where {expected} should be"

    def close(self) -> None:
        """Leave the clients as they were."""
        for service, stub in self._stubs.items():
            stub.deactivate()
            events = self._clients[service].meta.events
            events.unregister("before-parameter-build.*.*", unique_id="check")

    def assert_all_asked(self) -> None:
        """Every announced call was made."""
        for stub in self._stubs.values():
            stub.assert_no_pending_responses()


class RefusingAws(Aws):
    """An account that answers every request with the same error."""

    def __init__(self, code: str, message: str = "no", region: str = "us-west-2") -> None:
        super().__init__(region)
        self._code, self._message = code, message

    def client(self, service: str, region: str | None = None) -> Any:
        """A client whose every request is refused."""
        if service not in self._clients:
            client = _client(service, region or self.region, "refusing")
            client.meta.events.register("before-call", self._refuse, unique_id="refuse")
            self._clients[service] = client
        return self._clients[service]

    def close(self) -> None:
        """Leave the clients as they were."""
        for client in self._clients.values():
            client.meta.events.unregister("before-call", self._refuse, unique_id="refuse")

    def _refuse(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        http = type("Response", (), {"status_code": 400})()
        return http, {"Error": {"Code": self._code, "Message": self._message}, "ResponseMetadata": {}}


@pytest.fixture
def aws(on: Callable[[Aws], None]) -> Iterator[StubbedAws]:
    """The account that the verbs talk to."""
    account = StubbedAws()
    on(account)
    yield account
    account.close()


@pytest.fixture
def refusing() -> Iterator[Callable[..., RefusingAws]]:
    """Makes an account that refuses everything with one code."""
    made: list[RefusingAws] = []

    def make(code: str) -> RefusingAws:
        made.append(RefusingAws(code))
        return made[-1]

    yield make
    for account in made:
        account.close()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Aws], None]:
    """Make the verbs talk to an account."""
    load = target.load

    def use(aws: Aws) -> None:
        def loaded(stack: str, overrides: list[str] | None = None, root: Path | None = None) -> Target:
            found = load(stack, overrides, root)
            return replace(found, aws=aws)

        monkeypatch.setattr(target, "load", loaded)

    return use


def stack(aws: Aws, name: str = "dev", *settings: str) -> Target:
    """A ready stack on an account."""
    return replace(target.load(name, list(settings)), aws=aws)


def verb_of(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The verb that the first words name, and the rest of them."""
    verb, rest = command_line.command(cli.app), list(words)
    while rest and (below := getattr(verb, "commands", {}).get(rest[0])):
        verb, rest = below, rest[1:]
    return (verb.commands["deployment"] if verb.name == "rehearse" else verb), rest


def run(*words: str) -> tuple[int, str, str]:
    """A command line's exit code, output and errors; a traceback in them fails the test."""
    output, errors = CaptureIO(), CaptureIO()
    # Tests say whether it is a terminal.
    output.isatty, errors.isatty = sys.stdout.isatty, sys.stderr.isatty  # type: ignore[method-assign]
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(list(words))
    out, err = output.getvalue(), errors.getvalue()
    assert "Traceback" not in out + err
    assert "response stub" not in err, err
    assert "HP222" not in err, f"a defect: {err}"
    return code, out, err


def ended(code: Exit, *words: str) -> tuple[str, str]:
    """What a command line prints, and its errors, which ends with this code."""
    found, out, err = run(*words)
    assert found == code, out + err
    return out, err


def ended_json(code: Exit, *words: str) -> Any:
    """The same with --json: the document."""
    return json.loads(ended(code, *words, "--json")[0])


def run_json(*words: str) -> tuple[int, Any]:
    """The same with --json: the exit code and the document, which must be all of standard output."""
    code, out, _ = run(*words, "--json")
    return code, json.loads(out)


def cluster(status: str = "InService", groups: tuple[tuple[str, str, int], ...] = ()) -> dict[str, Any]:
    """DescribeCluster's answer."""
    chosen = groups or (("controller", "ml.m5.2xlarge", 1), ("workers", "ml.g5.16xlarge", 2))
    return {
        "ClusterArn": f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:cluster/{CLUSTER_ID}",
        "ClusterName": "hyperpod-dev",
        "ClusterStatus": status,
        "InstanceGroups": [
            {"InstanceGroupName": name, "InstanceType": kind, "CurrentCount": count, "TargetCount": count}
            for name, kind, count in chosen
        ],
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    }


def node(group: str, number: int, status: str = "Running", message: str = "") -> dict[str, Any]:
    """One of ListClusterNodes' summaries."""
    return {
        "InstanceGroupName": group,
        "InstanceId": f"i-{group}{number}",
        "InstanceType": "ml.m5.2xlarge" if group == "controller" else "ml.g5.16xlarge",
        "LaunchTime": f"2026-11-20T10:0{number}:00Z",
        "InstanceStatus": {"Status": status, **({"Message": message} if message else {})},
        "PrivateDnsHostname": f"ip-10-1-{0 if group == 'controller' else 1}-{number}.us-west-2.compute.internal",
    }


LOGICAL = "df268d19-f035-4f28-9b80-b956b92ae21e"
# A node that has no instance yet: it is in the list with IncludeNodeLogicalIds (SageMaker API Reference,
# ClusterNodeSummary).
TO_COME = {
    **{key: value for key, value in node("workers", 9, "Pending").items() if key != "PrivateDnsHostname"},
    "InstanceId": "",
    "NodeLogicalId": LOGICAL,
}
NODES = (node("controller", 1), node("workers", 1), node("workers", 2))


def with_nodes(aws: StubbedAws, *nodes: dict[str, Any], pages: int = 1) -> None:
    """The cluster is there, with these nodes over so many pages."""
    aws.answer("sagemaker", "describe_cluster", cluster(), ClusterName="hyperpod-dev")
    listed = list(nodes or NODES)
    size = -(-len(listed) // pages)
    for page in range(pages):
        part = listed[page * size : (page + 1) * size]
        more = {"NextToken": f"page{page + 1}"} if page < pages - 1 else {}
        asked = {"NextToken": f"page{page}"} if page else {}
        aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": part, **more}, **asked)


def with_session(aws: StubbedAws, **expected: Any) -> None:
    """Session Manager opens one session more."""
    answer = {"SessionId": "s-1", "TokenValue": "very-secret-token", "StreamUrl": "wss://example"}
    aws.answer("ssm", "start_session", answer, **expected)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session-manager-plugin that runs the command here, as the agent does, and notes how it was called.

    Commands of the cluster are scripts in the folder that this returns; put there what sinfo shall say.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "session-manager-plugin"
    program.write_text(_PLUGIN.format(python=sys.executable, calls=tmp_path / "calls.jsonl", folder=folder))
    _executable(program)
    command(
        folder,
        "sudo",
        'while [ "${1#-}" != "$1" ]; do shift; done; program=$(basename "$1"); shift; exec "$program" "$@"',
    )
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


class FakeKubernetes:
    """A Kubernetes API with these nodes and pods, on which every job ends at once with these lines."""

    def __init__(self, *, nodes: list[Any] | None = None, pods: list[Any] | None = None, log: str = "") -> None:
        self._nodes, self._pods, self._log = nodes or [], pods or [], log
        self.ends: str | None = "Succeeded"
        self.there: list[str] = []
        self.did: list[str] = []

    def nodes(self) -> list[Any]:
        return self._nodes

    def all_pods(self) -> list[Any]:
        return self._pods

    def listed(self, *_: Any) -> list[Any]:
        return []

    def apply(self, document: Any, *, dry_run: bool = False) -> None:
        if not dry_run:
            self.there.append(document["kind"])
            self.did.append(f"apply {document['kind']}")

    def get(self, document: Any) -> Any:
        if document["kind"] == "Namespace":
            return document
        if document["kind"] not in self.there:
            return None
        conditions = [{"type": self.ends, "status": "True"}] if self.ends else []
        return {**document, "status": {"conditions": conditions}}

    def delete(self, document: Any) -> None:
        self.did.append(f"delete {document['kind']}")
        self.there = [kind for kind in self.there if kind != document["kind"]]

    def pods(self, *_: Any) -> list[Any]:
        launcher = {"training.kubeflow.org/job-role": "launcher"}
        metadata = {"name": "launcher", "uid": "1", "labels": launcher}
        return [{"metadata": metadata, "status": {"phase": self.ends or "Pending"}}]

    def log(self, *_: Any, **__: Any) -> list[str]:
        return [f"{place:09} {line}" for place, line in enumerate(self._log.splitlines())]


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeKubernetes]:
    """Put a Kubernetes API in the place of the stack's."""

    def make(**given: Any) -> FakeKubernetes:
        api = FakeKubernetes(**given)
        monkeypatch.setattr("operations.cluster.nodes.kubernetes", lambda target: api)
        return api

    return make


def command(folder: Path, name: str, script: str) -> None:
    """A command that the nodes have."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    _executable(path)


def calls(folder: Path) -> list[dict[str, Any]]:
    """How the plugin was called, in order."""
    path = folder.parent / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


_PLUGIN = """#!{python} -IS
import json, os, shlex, subprocess, sys, threading
def read_keyboard():
    # As session-manager-plugin's handleKeyboardInput: the end of what is typed is the end of the session.
    while os.read(0, 1024):
        pass
    print("Cannot perform start session: EOF", flush=True)
    os._exit(0)
variable, region, operation, profile, request, endpoint = sys.argv[1:]
session = json.loads(os.environ[variable])
asked = json.loads(request)
with open("{calls}", "a") as file:
    file.write(json.dumps({{"arguments": sys.argv[1:], "session": session, "request": asked}}) + "\\n")
print("\\nStarting session with SessionId: " + session["SessionId"], flush=True)
if "Parameters" in asked:
    keyboard = threading.Thread(target=read_keyboard, daemon=True)
    keyboard.start()
    keyboard.join(0.02)
    # The agent starts the words without a shell.
    words = shlex.split(asked["Parameters"]["command"][0])
    environment = {{**os.environ, "PATH": "{folder}:/usr/bin:/bin"}}
    del environment[variable]
    subprocess.run(words, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
print("\\n\\nExiting session with sessionId: " + session["SessionId"] + ".\\n", flush=True)
"""


def controller_says(monkeypatch: pytest.MonkeyPatch, output: str) -> dict[str, str]:
    """What a command on the controller prints and ends with, to change; and what was asked of it."""
    found = {"output": output, "code": "0"}

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        assert node.role == "controller"
        found["asked"] = line
        return Remote(code=int(found["code"]), output=found["output"])

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return found

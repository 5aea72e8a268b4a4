"""``connect``, ``exec`` and ``ssh-config``: what a session with a node is like."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from operations.cluster import nodes, sessions
from operations.failures import Exit, Failure, described
from tests.operations.aws import (
    CLUSTER_ID,
    StubbedAws,
    calls,
    command,
    ended,
    node,
    run,
    stack,
    with_nodes,
    with_session,
)


def test_a_command_ends_with_its_own_exit_code_and_output(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws, DocumentName="AWS-StartNonInteractiveCommand")
    words = ("node", "exec", "dev", "controller", "--", "echo out; echo err >&2; exit 7")
    assert run(*words)[:2] == (7, "out\nerr\n")


@pytest.mark.parametrize(
    ("line", "output", "code"),
    [
        ("printf 'no newline'", "no newline\n", 0),
        # The agent's environment has no folder of Slurm's (amazon-ssm-agent, StartCommandExecutor).
        ('case "$PATH:" in *:/opt/slurm/bin:*) echo found ;; esac', "found\n", 0),
        ("true", "", 0),
        ("echo 'it'\"'\"'s' \"$((1 + 1))\" | tr a-z A-Z", "IT'S 2\n", 0),
        ("echo a  # a comment", "a\n", 0),
        ("printf '\\n\\nlast\\n'", "\n\nlast\n", 0),
        ("( exit 3 )", "", 3),
        ("if", None, 2),
        ("command-nobody-has", None, 127),
    ],
)
def test_any_shell_line_arrives_whole(line: str, output: str | None, code: int, aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    ran = sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), line)
    assert ran.code == code
    assert output is None or ran.output == output


def test_arguments_keep_their_spaces(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    out, _ = ended(Exit.GOOD, "node", "exec", "dev", "workers-1", "--json", "--", "printf", "%s|", "a b", "c'd")
    assert json.loads(out) == {"node": "workers-1", "instance_id": "i-workers1", "exit_code": 0, "output": "a b|c'd|\n"}


def test_the_sessions_token_is_in_no_argument(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), "true")
    (call,) = calls(plugin)
    assert call["session"]["TokenValue"] == "very-secret-token"
    assert "very-secret-token" not in json.dumps(call["arguments"])
    assert call["arguments"][1:3] == ["us-west-2", "StartSession"]
    assert "very-secret-token" not in json.dumps(dict(os.environ))


def test_a_broken_session_is_distinguished_from_a_failed_command(aws: StubbedAws, plugin: Path) -> None:
    command(
        plugin, "session-manager-plugin", "echo; echo 'Starting session with SessionId: s-1'; echo TargetNotConnected"
    )
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    with pytest.raises(Failure, match="TargetNotConnected") as failed:
        sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), "true")
    assert failed.value.code == Exit.CANNOT_KNOW


def test_a_node_whose_agent_is_not_connected_is_waited_for(aws: StubbedAws, plugin: Path) -> None:
    # Systems Manager API Reference, StartSession, Errors: the node is not fully configured for Session Manager.
    with_nodes(aws)
    aws.refuse("ssm", "start_session", "TargetNotConnected", "sagemaker-cluster:c_controller-i-1 is not connected.")
    target = stack(aws)
    with pytest.raises(ClientError) as refused:
        sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), "true")
    failure = described(refused.value, "dev")
    assert failure.code == Exit.CANNOT_KNOW
    assert "is not connected" in failure.message
    assert failure.hint.startswith("wait until it has booted: hyperpod node list dev")


def test_a_rehearsed_node_is_unknown_in_the_rehearsals_own_words(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    aws.refuse("ssm", "start_session", "NotRehearsed", "`hyperpod rehearse nodes dev` boots such nodes")
    target = stack(aws)
    with pytest.raises(ClientError) as refused:
        sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), "true")
    failure = described(refused.value, "dev")
    assert (failure.code, failure.hint) == (Exit.CANNOT_KNOW, "")
    assert failure.message == "`hyperpod rehearse nodes dev` boots such nodes"


def test_a_command_that_takes_too_long_is_ended_on_the_node_too(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    aws.answer("ssm", "terminate_session", {"SessionId": "s-1"}, SessionId="s-1")
    target = stack(aws)
    with pytest.raises(Failure, match="did not end within 0 s"):
        sessions.run_remote(target, nodes.find(nodes.list_nodes(target), "controller"), "sleep 2", timeout=0.2)
    aws.assert_all_asked()


def test_a_session_is_kept_alive_by_what_is_typed(
    aws: StubbedAws, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems Manager User Guide, "Specify an idle session timeout value": only inputs count, not what is printed."""
    monkeypatch.setattr(sessions, "_TYPING_SECONDS", 0.01)
    monkeypatch.setattr("secrets.token_hex", lambda count: "x")
    script = 'echo __hyperpod_begin_x__; read -r typed; echo "typed <$typed>"; echo; echo __hyperpod_end_x__ 0'
    command(plugin, "session-manager-plugin", script)
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    ran = sessions.run_remote(target, nodes.list_nodes(target)[0], "sleep 3600", timeout=30)
    assert (ran.code, ran.output) == (0, "typed <>\n")


def test_a_plugin_that_does_not_know_the_variable_is_said_to_be_too_old(aws: StubbedAws, plugin: Path) -> None:
    said = "Cannot perform start session: invalid character 'A' looking for beginning of value"
    command(plugin, "session-manager-plugin", f'echo "{said}"')
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    with pytest.raises(Failure, match=r"is older than 1\.2\.536") as failed:
        sessions.run_remote(target, nodes.list_nodes(target)[0], "true")
    assert "install-plugin" in failed.value.hint


def test_a_node_that_is_not_running_takes_no_session(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws, node("controller", 1, "SystemUpdating"))
    target = stack(aws)
    with pytest.raises(Failure, match="controller-1 is SystemUpdating"):
        sessions.run_remote(target, nodes.list_nodes(target)[0], "true")


def test_a_machine_without_the_plugin_is_told_where_it_is(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with_nodes(aws)
    _, err = ended(Exit.CANNOT_KNOW, "node", "connect", "dev")
    assert "install-plugin" in err


def test_connect_opens_a_shell_without_a_document(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    with_session(aws)
    _, err = ended(Exit.GOOD, "node", "connect", "dev", "workers-2")
    (call,) = calls(plugin)
    assert call["request"] == {"Target": f"sagemaker-cluster:{CLUSTER_ID}_workers-i-workers2"}
    assert "workers-2" in err


def test_connect_opens_a_recorded_shell_where_the_stack_says_so(aws: StubbedAws, plugin: Path) -> None:
    with_nodes(aws)
    target = stack(aws, "dev", 'hyperpod:security={"sessionLogs": true}')
    with_session(aws, DocumentName=target.names.document("session"))
    assert sessions.connect(target, nodes.list_nodes(target)[0]) == 0
    (call,) = calls(plugin)
    assert call["request"]["DocumentName"].startswith("hyperpod-hyperpod-dev-")


def test_ctrl_c_in_a_shell_is_the_nodes_and_ours_again_afterwards(
    aws: StubbedAws, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    within: list[object] = []

    def call(*_: object, **__: object) -> int:
        within.append(signal.getsignal(signal.SIGINT))
        return 5

    monkeypatch.setattr(subprocess, "call", call)
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    # In the background Ctrl-C is ignored from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert sessions.connect(target, nodes.list_nodes(target)[0]) == 5
        assert within == [signal.SIG_IGN]
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_session_is_the_profiles_and_a_terminals_line_ends_are_taken_off(
    aws: StubbedAws, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "training")
    with_nodes(aws)
    with_session(aws)
    target = stack(aws)
    ran = sessions.run_remote(target, nodes.list_nodes(target)[0], "printf 'one\\r\\ntwo\\r\\n'")
    assert ran.output == "one\ntwo\n"
    (call,) = calls(plugin)
    assert call["arguments"][3] == "training"


def test_ssh_takes_the_configuration(aws: StubbedAws, tmp_path: Path) -> None:
    with_nodes(aws, node("controller", 1), node("workers", 1), node("workers", 2, "Pending"))
    path = tmp_path / "config.d" / "hyperpod"
    _, err = ended(Exit.GOOD, "node", "ssh-config", "dev", "--write", str(path))
    assert "ssh hyperpod-dev-controller-1" in err
    text = path.read_text()
    assert f"HostName sagemaker-cluster:{CLUSTER_ID}_controller-i-controller1" in text
    # The user of HyperPod's images (SageMaker Developer Guide, "Access your HyperPod cluster nodes").
    assert "    User ubuntu\n" in text
    assert "workers-2" not in text, "a node that does not run takes no ssh"
    # Written again over itself, but never over somebody's own file.
    with_nodes(aws)
    assert run("node", "ssh-config", "dev", "--write", str(path))[0] == Exit.GOOD
    path.write_text("Host mine\n")
    with_nodes(aws)
    assert run("node", "ssh-config", "dev", "--write", str(path))[0] == Exit.BAD_INPUT
    assert path.read_text() == "Host mine\n"

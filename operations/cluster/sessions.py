"""Sessions with nodes through Session Manager: HyperPod nodes accept no SSH from outside and no Run Command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperpod_node.settings import Settings

from components.sessions import SESSION
from stack.failures import Failure, cannot_know

from ..target import Target

if TYPE_CHECKING:
    from .node import Node

PLUGIN = "session-manager-plugin"
_PLUGIN_HELP = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
# The plugin reads the session from the variable that its first argument names, so that the token is not in the
# process list (session-manager-plugin 1.2.497 and later).
_SESSION_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
NON_INTERACTIVE = "AWS-StartNonInteractiveCommand"
# Sessions opened at once; StartSession is throttled per account (AWS General Reference, Systems Manager quotas).
AT_ONCE = 8
_BEGIN, _END = "__hyperpod_begin__", "__hyperpod_end__"


@dataclass(frozen=True, kw_only=True)
class Remote:
    """The result of a command on a node: its exit code, and output and errors, which the agent mixes."""

    code: int
    output: str


def session_target(target: Target, node: Node) -> str:
    """The node's name for Session Manager (SageMaker Developer Guide, "Access your HyperPod cluster nodes")."""
    return f"sagemaker-cluster:{target.cluster_id}_{node.group}-{node.instance_id}"


def run_remote(target: Target, node: Node, command: str, timeout: float = 600) -> Remote:
    """Run a shell command on a node. Raises Failure where the session ends early.

    Session Manager does not return exit codes, so the shell prints the command's code after its output, and this
    function removes it. The agent starts commands without a shell (amazon-ssm-agent, StartCommandExecutor), so bash is
    explicit, and with the agent's own environment (its shell_unix.go), so that Slurm's folder is not in PATH either.
    """
    path = f"export PATH=$PATH:{Settings.extra_path}"
    script = f"{path}; echo {_BEGIN}; ( eval {shlex.quote(command)} ); code=$?; echo; echo {_END} $code"
    text = _session(
        target, node, timeout, DocumentName=NON_INTERACTIVE, Parameters={"command": [f"bash -c {shlex.quote(script)}"]}
    )
    return _read(node, text)


def _read(node: Node, text: str) -> Remote:
    lines = text.replace("\r", "").splitlines()
    begin = next((i for i, line in enumerate(lines) if line.strip() == _BEGIN), None)
    end = next((i for i, line in enumerate(lines) if line.startswith(f"{_END} ")), None)
    if begin is None or end is None:
        said = " ".join(line.strip() for line in lines if line.strip()) or "nothing"
        raise cannot_know(
            f"the session with {node.name} ended before the command did; it said: {said[-400:]}",
            "is the node healthy? `hyperpod nodes STACK`",
        )
    body = lines[begin + 1 : end]
    # This empty line is ours.
    if body and not body[-1]:
        body.pop()
    return Remote(code=int(lines[end].split()[1]), output="\n".join(body) + "\n" if body else "")


def _session(target: Target, node: Node, timeout: float, **request: Any) -> str:
    arguments, environment = _start(target, node, request)
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        target.aws.client("ssm").terminate_session(SessionId=json.loads(environment[_SESSION_VARIABLE])["SessionId"])
        raise Failure(f"the command on {node.name} did not end within {timeout:.0f} s", "a longer --timeout") from None
    return done.stdout


def connect(target: Target, node: Node) -> int:
    """Open a shell on a node in this terminal, recorded where the stack says so. Returns its exit code."""
    recorded = target.config.settings.security.session_logs
    request = {"DocumentName": target.names.document(SESSION)} if recorded else {}
    arguments, environment = _start(target, node, request)
    # Ctrl-C goes to the shell on the node.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.call(arguments, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)


def _start(target: Target, node: Node, request: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The plugin's command line for a new session, and its environment."""
    plugin = shutil.which(PLUGIN)
    if plugin is None:
        raise cannot_know("Session Manager's plugin is not installed on this machine", _PLUGIN_HELP)
    if node.status != "Running":
        raise Failure(
            f"{node.name} is {node.status}: {node.message or 'no session is possible'}",
            "wait, or see `hyperpod errors STACK`",
        )
    client = target.aws.client("ssm")
    asked = {"Target": session_target(target, node), **request}
    answer = client.start_session(**asked)
    session = {key: answer[key] for key in ("SessionId", "TokenValue", "StreamUrl")}
    profile = os.environ.get("AWS_PROFILE", "")
    endpoint = client.meta.endpoint_url
    command = [plugin, _SESSION_VARIABLE, target.aws.region, "StartSession", profile, json.dumps(asked), endpoint]
    return command, {**os.environ, _SESSION_VARIABLE: json.dumps(session)}


def ssh_config(target: Target, nodes: Sequence[Node]) -> str:
    """Entries for ~/.ssh/config: ssh to nodes by name through Session Manager. Needs the AWS CLI and the plugin."""
    proxy = (
        f"aws ssm start-session --region {target.aws.region} --target %h "
        "--document-name AWS-StartSSHSession --parameters portNumber=%p"
    )
    entries = [
        "\n".join(
            (
                f"Host {target.cluster_name}-{node.name}",
                f"    HostName {session_target(target, node)}",
                "    User ubuntu",
                f'    ProxyCommand sh -c "{proxy}"',
            )
        )
        for node in nodes
        if node.status == "Running"
    ]
    return "\n\n".join(entries) + "\n" if entries else ""

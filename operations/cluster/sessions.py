"""Sessions with nodes through Session Manager: HyperPod nodes accept no SSH from outside and no Run Command."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyperpod_node.host.settings import Settings

from components.security.sessions import SESSION

from ..failures import Failure, cannot_know
from ..target import Target

if TYPE_CHECKING:
    from .node import Node

PLUGIN = "session-manager-plugin"
_PLUGIN_HELP = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
# The plugin reads the session from the variable that its first argument names, so that the token is not in the
# process list. Older ones take that name for the session itself (session-manager-plugin, release notes of 1.2.536).
_SESSION_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
_TOO_OLD = "invalid character 'A' looking for beginning of value"
# A session ends where nothing is typed for 20 minutes, and for a minute at the least where an account says so, whatever
# the command prints (Systems Manager User Guide, "Specify an idle session timeout value"). What is typed here goes
# nowhere: of it the agent passes only control signals to a command (amazon-ssm-agent, InputStreamMessageHandler).
_TYPED, _TYPING_SECONDS = b"\n", 30.0
NON_INTERACTIVE, SSH = "AWS-StartNonInteractiveCommand", "AWS-StartSSHSession"
# Sessions opened at once; StartSession is throttled per account (AWS General Reference, Systems Manager quotas).
AT_ONCE = 8


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
    # Nobody whose words the command prints, such as a job's name, can know what ends its output.
    path, nonce = f"export PATH=$PATH:{Settings.extra_path}", secrets.token_hex(8)
    script = f"{path}; echo {_begin(nonce)}; ( eval {shlex.quote(command)} ); code=$?; echo; echo {_end(nonce)} $code"
    text = _session(
        target, node, timeout, DocumentName=NON_INTERACTIVE, Parameters={"command": [f"bash -c {shlex.quote(script)}"]}
    )
    return _read(node, text, nonce)


def _begin(nonce: str) -> str:
    return f"__hyperpod_begin_{nonce}__"


def _end(nonce: str) -> str:
    return f"__hyperpod_end_{nonce}__"


def _read(node: Node, text: str, nonce: str) -> Remote:
    # Lines of a shell's: a name may have what Python takes for the end of a line, too.
    lines = text.replace("\r", "").split("\n")
    begin = next((i for i, line in enumerate(lines) if line.strip() == _begin(nonce)), None)
    end = next((i for i, line in enumerate(lines) if line.startswith(f"{_end(nonce)} ")), None)
    if begin is None or end is None:
        said = " ".join(line.strip() for line in lines if line.strip()) or "nothing"
        if _TOO_OLD in said:
            raise cannot_know(f"Session Manager's plugin on this machine is older than 1.2.536: {said}", _PLUGIN_HELP)
        raise cannot_know(
            f"the session with {node.name} ended before the command did; it said: {said[-400:]}",
            "is the node healthy? `hyperpod node list STACK`",
        )
    body = lines[begin + 1 : end]
    # This empty line is ours.
    if body and not body[-1]:
        body.pop()
    return Remote(code=int(lines[end].split()[1]), output="\n".join(body) + "\n" if body else "")


def _session(target: Target, node: Node, timeout: float, **request: Any) -> str:
    """All that the plugin prints. It ends the session where its standard input ends, whatever is still to come
    (session-manager-plugin, handleKeyboardInput), so that has to stay open."""
    arguments, environment = _start(target, node, request)
    reading, typing = os.pipe()
    try:
        started = subprocess.Popen(
            arguments,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        os.close(reading)
        with started:
            text = _typed_to(started, typing, timeout)
            if text is None:
                started.kill()
    finally:
        os.close(typing)
    if text is None:
        target.aws.client("ssm").terminate_session(SessionId=json.loads(environment[_SESSION_VARIABLE])["SessionId"])
        raise Failure(f"the command on {node.name} did not end within {timeout:.0f} s", "a longer --timeout")
    return text


def _typed_to(started: subprocess.Popen[str], typing: int, timeout: float) -> str | None:
    """What the plugin prints until it ends, typing now and then to keep the session; None after the time limit."""
    end = time.monotonic() + timeout
    while True:
        try:
            return started.communicate(timeout=max(0.0, min(_TYPING_SECONDS, end - time.monotonic())))[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                return None
            with contextlib.suppress(BrokenPipeError):
                os.write(typing, _TYPED)


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
        f"--document-name {SSH} --parameters portNumber=%p"
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

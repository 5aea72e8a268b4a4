"""``hyperpod-credentials``: gives people AWS credentials by the node's role, which only root reaches.

    hyperpod-credentials role NAME      a role's credentials, in the form of credential_process
    hyperpod-credentials secret NAME    a secret of the cluster's, where ``security.workerSecrets`` lets workers read it
    hyperpod-credentials ecr REGION     a password for the account's images in ECR
    hyperpod-credentials mlflow         credentials for the stack's MLflow App, with `observability.mlflow`

A role's name decides who gets it: its path is /hyperpod/CLUSTER/, and it is for the user of that name or the members of
that group. That for MLflow is for everybody. A socket of root's receives the request, and the kernel names its user
(unix(7), SO_PEERCRED). metadata_guard.py keeps everybody else from the role.
"""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import re
import socket
import struct
import sys
from typing import Any, Collection, Sequence

from ..facts import node_record
from ..facts.model import MLFLOW_CONFIG, USER_NAME, Node, own_path
from ..host import aws_cli, units
from ..host.errors import Skip, StepError
from ..host.host import Host
from ..host.settings import Settings

COMMAND, ADDRESS = "hyperpod-credentials", "/run/hyperpod-credentials"
# Bytes of a request. Seconds for its answer, for which the service makes two calls to AWS.
LENGTH, PATIENCE = 512, 150.0
SOCKET = f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Credentials for people, by name

[Socket]
ListenStream={ADDRESS}
SocketMode=0666
Accept=yes
MaxConnections=256

[Install]
WantedBy=sockets.target
"""
SERVICE = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Credentials for one person
CollectMode=inactive-or-failed

[Service]
ExecStart={bin}/{command} --answer
StandardInput=socket
StandardOutput=socket
StandardError=journal
RuntimeMaxSec=150
"""


MLFLOW_TEXT = """# Made by the HyperPod lifecycle scripts.
[default]
region = {region}
credential_process = {bin}/{command} mlflow
"""


def run(node: Node) -> str:
    """Step ``credentials``."""
    if node.role != "worker":
        raise Skip("for jobs, which run on workers")
    host = node.host
    program = {"bin": f"{host.settings.install_folder}/bin", "command": COMMAND}
    host.write(f"{units.UNITS}/{COMMAND}@.service", SERVICE.format(**program))
    host.write(f"{units.UNITS}/{COMMAND}.socket", SOCKET)
    if node.parameters.mlflow:
        config = MLFLOW_TEXT.format(region=node.parameters.region, **program)
        host.write(f"{host.settings.state_folder}/{MLFLOW_CONFIG}", config)
    units.start(node.host, f"{COMMAND}.socket")
    return f"people ask {COMMAND} for what is named for them"


def answer(host: Host, user: str, groups: Collection[str], question: str) -> str:
    """Return what a person requests. Raises StepError if it is not theirs, and aws_cli.Refused."""
    known = node_record.read(host).parameters
    cluster, region = known.cluster_name, known.region

    def ask(*words: str, of: str = region) -> Any:
        return aws_cli.ask(host, of, host.settings.timeouts["aws"], *words)

    def assume(role: str) -> str:
        session = f"hyperpod-{user}"
        given = ask("sts", "assume-role", "--role-arn", role, "--role-session-name", session)["Credentials"]
        return json.dumps({"Version": 1, **given})

    what, _, name = question.strip().partition(" ")
    if (what, name) == ("mlflow", "") and known.mlflow:
        return assume(known.mlflow.role)
    if what == "role" and re.fullmatch(USER_NAME, name):
        if name != user and name not in groups:
            raise StepError(f"the role {name} is for the user or the group of that name, and {user} is neither")
        # arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION
        _, partition, _, _, account, _ = ask("sts", "get-caller-identity")["Arn"].split(":")
        return assume(f"arn:{partition}:iam::{account}:role/{own_path(cluster)}/{name}")
    if what == "secret" and re.fullmatch(rf"{re.escape(own_path(cluster))}/[A-Za-z0-9/_+=.@-]+", name):
        return str(ask("secretsmanager", "get-secret-value", "--secret-id", name)["SecretString"])
    if what == "ecr" and re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", name):
        token = ask("ecr", "get-authorization-token", of=name)["authorizationData"][0]
        return base64.b64decode(token["authorizationToken"]).decode().partition(":")[2]
    raise StepError(f"role NAME, secret {own_path(cluster)}/NAME, ecr REGION or mlflow, and not {question.strip()!r}")


def _answer(host: Host) -> None:
    """Answer the user at the other end of the standard input."""
    with socket.socket(fileno=os.dup(0)) as peer:
        uid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        peer.settimeout(10)
        who = pwd.getpwuid(uid)
        groups = {grp.getgrgid(gid).gr_name for gid in os.getgrouplist(who.pw_name, who.pw_gid)}
        try:
            reply = {"answer": answer(host, who.pw_name, groups, peer.recv(LENGTH).decode(errors="replace"))}
        except (StepError, aws_cli.Refused, KeyError, ValueError, TypeError) as error:
            reply = {"error": str(error)}
        peer.sendall(json.dumps(reply).encode())


def main(words: Sequence[str]) -> int:
    """``hyperpod-credentials WHAT NAME``; 1 if it is refused."""
    if words == ["--answer"]:
        _answer(Host(Settings.from_environment()))
        return 0
    try:
        with socket.socket(socket.AF_UNIX) as service:
            service.settimeout(PATIENCE)
            service.connect(ADDRESS)
            service.sendall(" ".join(words).encode()[:LENGTH])
            found = json.loads(b"".join(iter(lambda: service.recv(1 << 16), b"")))
    except (OSError, ValueError) as error:
        found = {"error": str(error)}
    if "answer" in found:
        print(found["answer"])
        return 0
    print(f"{COMMAND}: {found['error']}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

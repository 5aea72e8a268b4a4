"""The embedded account and the environment of its users, kept alive for plain `pulumi` commands and for the verbs."""

import os
import secrets
import shlex
import shutil
import sys
import threading
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from components.config import Config
from operations.aws import SERVED
from operations.project.loading import Project

from ..account import Account
from ..engines.deployment import up
from ..engines.real import Place, place
from .api import serving

_UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "PULUMI_ACCESS_TOKEN")
# Programs that verbs look for before they ask AWS, which refuses a session and knows every token. A real `aws` is used.
_STAND_INS = {
    "session-manager-plugin": "exit 1",
    "aws": """echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", """
    """"status": {"token": "rehearsal"}}'""",
}
_DEPLOYED = "The stack is already deployed in it; deploy, scale, remove and destroy need `pulumi`, which is not on PATH"


def keep_serving(project: Project, config: Config, account: Account, console: Console) -> NoReturn:
    """Serve until a signal (Interrupted). Everything on disk is in one temporary folder, which is deleted then.

    Without the Pulumi CLI the stack is deployed first, by the embedded engine.
    """
    stack, key = project.stack, f"AKIA{secrets.token_hex(8).upper()}"
    has_cli = shutil.which("pulumi") is not None
    if not has_cli:
        up(project, account)
    with place(project, account) as at, serving(account, config, stack, key) as address:
        script = write_environment(at, account.region, key, address)
        lines = [
            f"The embedded account of {stack} ({account.region}) is up. In another terminal:",
            "",
            f"    source {script}",
            *([f"    hyperpod deploy {stack}        # or `pulumi up`"] if has_cli else []),
            f"    hyperpod status {stack}        # and node, quotas, validate, errors, watch ...",
            "",
            "Ctrl-C here ends it; nothing is left then, neither here nor on AWS.",
        ]
        if not has_cli:
            lines.append(f"{_DEPLOYED}: https://www.pulumi.com/docs/install/")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
        threading.Event().wait()
    raise AssertionError("only a signal ends this")


def write_environment(at: Place, region: str, key: str, address: str) -> Path:
    """Write a script to source: it sets the environment that `pulumi` and the verbs need, with AWS at ``address`` for
    the access key ``key``, and enters the project's folder."""
    above = at.project.parent
    script, programs = above / "environment", above / "bin"
    programs.mkdir()
    for name, line in _STAND_INS.items():
        if name != "aws" or shutil.which("aws") is None:
            (programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (programs / name).chmod(0o700)
    values = {
        **at.environment,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), at.environment["PATH"]]),
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "rehearsal",
        "AWS_EC2_METADATA_DISABLED": "true",
        # A call to AWS that bypasses the providers comes here, too.
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": region,
        # boto3 and version 1 of the AWS CLI know only this one.
        "AWS_DEFAULT_REGION": region,
        SERVED: str(at.project),
        "PULUMI_HOME": str(at.home),
    }
    lines = [f"unset {' '.join(_UNSET)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    lines.append(f"cd {shlex.quote(str(at.project))}")
    script.write_text("\n".join(lines) + "\n")
    # It contains the passphrase of the stack's secrets.
    script.chmod(0o600)
    return script

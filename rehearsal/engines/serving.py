"""The embedded account and the real engine's environment, kept alive for plain `pulumi` commands."""

from __future__ import annotations

import shlex
import shutil
import threading
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from stack.project import Project

from ..account import Account
from .real import Place, place

# A call to AWS that bypasses the providers gets no answer and no real credentials: port 9 is "discard" (RFC 863).
_NO_AWS = {
    "AWS_ACCESS_KEY_ID": "rehearsal",
    "AWS_SECRET_ACCESS_KEY": "rehearsal",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}
_UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "PULUMI_ACCESS_TOKEN")


def keep_serving(project: Project, account: Account, console: Console) -> NoReturn:
    """Serve until a signal (Interrupted). Everything on disk is in one temporary folder, which is deleted then."""
    with place(project, account) as at:
        script = write_environment(at, account.region)
        lines = [
            f"The embedded account of {project.stack} ({account.region}) is up. In another terminal:",
            "",
            f"    source {script}",
            f"    pulumi stack select --create {project.stack}",
            "    pulumi up        # and preview, refresh, destroy, config set ... as often as you like",
            "",
            "Ctrl-C here ends it; nothing is left then, neither here nor on AWS.",
        ]
        if shutil.which("pulumi") is None:
            lines.append("There is no `pulumi` on PATH yet: https://www.pulumi.com/docs/install/")
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
        threading.Event().wait()
    raise AssertionError("only a signal ends this")


def write_environment(at: Place, region: str) -> Path:
    """Write a script to source: it sets the environment that `pulumi` needs and enters the project's folder."""
    script = at.project.parent / "environment"
    values = {**at.environment, **_NO_AWS, "AWS_REGION": region, "PULUMI_HOME": str(at.home)}
    lines = [f"unset {' '.join(_UNSET)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    lines.append(f"cd {shlex.quote(str(at.project))}")
    script.write_text("\n".join(lines) + "\n")
    # It contains the passphrase of the stack's secrets.
    script.chmod(0o600)
    return script

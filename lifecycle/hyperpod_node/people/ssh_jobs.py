"""On workers: refuses ssh without a job there, and adds ssh sessions to the job (slurm.schedmd.com, pam_slurm_adopt).
Root, ubuntu and people with sudo are admitted as before.

An administrator whom the rule locks out may not get back in. So the rule is only written if the module exists, if Slurm
makes the step that the module needs (PrologFlags=Contain), and after the lines that admit all administrators.
"""

from __future__ import annotations

import re
from typing import List

from ..facts.model import IMAGE_USER, Node
from ..host.errors import NotYet, Skip, StepError
from ..host.host import Host
from ..slurm import worker
from . import unix_accounts

MODULE = "pam_slurm_adopt.so"
# Where pam(8) looks: Debian's and Ubuntu's folder, and that of Slurm's own `make install` (pam_slurm_adopt, "Source").
FOLDERS = ("/lib/security", "/lib64/security", "/lib/x86_64-linux-gnu/security", "/lib/aarch64-linux-gnu/security")
PAM, SESSION, ACCESS = "/etc/pam.d/sshd", "/etc/pam.d/hyperpod-session", "/etc/hyperpod/ssh-access.conf"
SERVER = "/etc/ssh/sshd_config.d/60-hyperpod-jobs.conf"
# While nodes join, the controller reads its configuration again and is silent.
ANSWER_SECONDS = 30.0
BEGIN, END = "# hyperpod: only with a job here", "# hyperpod: end"
# Slurm's documentation recommends to deny here; its default is to admit.
RULE = f"""{BEGIN}
account sufficient pam_access.so accessfile={ACCESS}
-account required {MODULE} action_adopt_failure=deny action_generic_failure=deny
{END}
"""
# pam_systemd would move the session out of the job again.
_COMMON = re.compile(r"^@include\s+common-session\s*$", re.MULTILINE)
_SYSTEMD = re.compile(r"^-?session\s.*\bpam_systemd\.so\b.*\n", re.MULTILINE)


def run(node: Node) -> str:
    """Step ``ssh-jobs``."""
    host = node.host
    if node.role != "worker":
        raise Skip("for workers")
    why = _obstacle(host)
    if why:
        remove(host)
        node.warn(f"ssh to this node needs no job: {why}")
        return "not in force"
    allowed = allow(host)
    host.write(SESSION, _SYSTEMD.sub("", host.read("/etc/pam.d/common-session") or ""))
    text = _without(host.read(PAM) or "")
    host.write(PAM, _COMMON.sub(f"@include {SESSION.rsplit('/', 1)[1]}", _with_rule(text)))
    if host.write(SERVER, "# Made by the HyperPod lifecycle scripts.\nUsePAM yes\n", mode=0o600):
        host.run("systemctl", "reload", "ssh", check=False)
    return f"besides {', '.join(allowed)}, only people with a job here"


def allow(host: Host) -> List[str]:
    """Return who is admitted without a job, by access.conf(5)."""
    allowed = ["root", IMAGE_USER, *unix_accounts.with_sudo(host)]
    host.write(ACCESS, f"+:{' '.join(allowed)}:ALL\n-:ALL:ALL\n", mode=0o600)
    return allowed


def remove(host: Host) -> None:
    """Remove the rule, if there is one."""
    text = host.read(PAM)
    if text is not None:
        host.write(PAM, _without(text))


def _obstacle(host: Host) -> str:
    """Return why the rule would lock out people with a job here, or cannot be written; empty if nothing is missing."""
    if host.read(PAM) is None:
        return f"there is no {PAM}"
    if not any(host.path(f"{folder}/{MODULE}").exists() for folder in FOLDERS):
        return f"{MODULE} is in none of {', '.join(FOLDERS)}; it has to be of the node's own release of Slurm"
    try:
        flags = host.poll("the controller did not say its PrologFlags", lambda: _flags(host), ANSWER_SECONDS, most=1.0)
    except StepError as error:
        return str(error)
    return "" if "contain" in flags.lower() else f"the controller has PrologFlags={flags}, without Contain"


def _flags(host: Host) -> str:
    """Return the controller's PrologFlags. Raises NotYet if it does not answer."""
    shown = worker.scontrol(host, "show", "config")
    found = re.search(r"^PrologFlags\s*=\s*(\S+)", shown.out, re.MULTILINE)
    if not found:
        raise NotYet(shown.reason)
    return found.group(1)


def _with_rule(text: str) -> str:
    """Return the text with the rule after the last account line: nothing of that kind may come after it."""
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if re.match(r"-?account\s|@include\s+common-account\b", line)]
    if not places:
        raise StepError(f"{PAM} has no account section")
    return "".join([*lines[: places[-1] + 1], RULE, *lines[places[-1] + 1 :]])


def _without(text: str) -> str:
    kept: List[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == BEGIN:
            inside = True
        elif line.rstrip("\n") == END:
            inside = False
        elif not inside:
            kept.append(line)
    return re.sub(r"^@include\s+hyperpod-session\s*$", "@include common-session", "".join(kept), flags=re.MULTILINE)

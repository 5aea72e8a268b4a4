"""SSH between the nodes without a prompt, only where it is needed: keys of the cluster, known host keys.

People and their MPI programs go to workers, as ubuntu. The controller and login nodes accept no key of the cluster:
root on a worker has every key on it, and if cloud-init made ubuntu as its default user, ubuntu may become root. Root's
key is the controller's, and only ends jobs on workers (slurm/end-job.sh). A copy is on the shared file system, for the
next controller. Root on a worker can read it there, but could end jobs anyway with the MUNGE key.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from ..facts.model import IMAGE_USER, Node, host_name
from ..host import aws_cli, make_once
from ..host.errors import Skip, StepError
from . import ssh_folder

# The folders of the two key pairs on the shared file system, and that of earlier scripts, which had one for root on all
# nodes.
PERSONS_KEY, CONTROLLERS_KEY, OUTDATED = "ssh-ubuntu", "ssh-controller", "ssh-root"
KEY_NAME = "id_hyperpod"
# The names that ssh-keygen gives keys; HyperPod's image makes one for ubuntu. ssh ignores them if a configuration names
# another (ssh_config(5), IdentityFile).
OWN_KEYS = ("id_rsa", "id_ed25519", "id_ecdsa")
AUTHORIZED = "authorized_keys"
CLIENT = "/etc/ssh/ssh_config.d/50-hyperpod.conf"
SERVER = "/etc/ssh/sshd_config.d/50-hyperpod.conf"
HOST_KEYS = "/etc/ssh"
SERVER_TEXT = """# Made by the HyperPod lifecycle scripts. Keys only.
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
# The cluster's nodes: the user's key, the cluster's list of host keys, no question asked and no unknown host accepted.
# By patterns, as nodes come and go: a configuration on the shared file system could have commands from another node.
CLIENT_TEXT = """# Made by the HyperPod lifecycle scripts.
Host {names} !*.internal
    IdentityFile ~/.ssh/id_hyperpod
{more}    GlobalKnownHostsFile {shared}/known_hosts
    StrictHostKeyChecking yes
"""


class Pair(NamedTuple):
    """A key pair's two files."""

    secret: str
    public: str


def run(node: Node) -> str:
    """Step ``ssh``: key pairs, authorized keys, host keys, client and server settings."""
    made = _keys(node)
    _host_keys(node)
    _known_hosts(node)
    _client(node)
    _server(node)
    return f"keys made for {', '.join(made)}" if made else "keys taken"


def _keys(node: Node) -> List[str]:
    """Return which user has which key here, which keys admit as that user, and the keys created now."""
    worker = node.role == "worker"
    made, end_jobs = _pair(node, CONTROLLERS_KEY, "controller")
    command = f'restrict,command="{node.host.settings.install_folder}/bin/hyperpod-end-job"'
    _set(
        node,
        "root",
        end_jobs if node.role == "controller" else None,
        [_line(node, end_jobs, command)] if worker else [],
    )
    found = ["the controller"] if made else []
    shutil.rmtree(str(node.host.path(f"{node.private}/{OUTDATED}")), ignore_errors=True)
    if node.host.home(IMAGE_USER) is None or node.by_image:
        return found
    made, pair = _pair(node, PERSONS_KEY, IMAGE_USER)
    try:
        # Home directories on a separate file system are the same on all nodes: root on any node owns them all.
        _set(node, IMAGE_USER, pair, [_line(node, pair)] if worker or node.parameters.home_fsx_id else [])
    except StepError as error:
        # Somebody's folder is theirs.
        node.warn(f"{IMAGE_USER} has no key of the cluster: {error}")
        return found
    return found + ([IMAGE_USER] if made else [])


def users_key(node: Node) -> str:
    """Step ``users-key``: people's public key, from Parameter Store."""
    name = node.parameters.ssh_public_key_parameter
    if not name:
        raise Skip("no key is configured")
    try:
        answer = node.aws("ssm", "get-parameter", "--name", name)
    except aws_cli.Refused as refused:
        raise StepError(f"parameter {name}: {refused}") from None
    key = str(answer["Parameter"]["Value"]).strip()
    user = IMAGE_USER if node.host.home(IMAGE_USER) else "root"
    with ssh_folder.opened(node.host, user) as folder:
        _authorize(folder, key)
    return f"{name} may log in as {user}"


def _pair(node: Node, name: str, whose: str) -> Tuple[bool, Pair]:
    """Return a key pair of the cluster, and whether it was created now."""

    def fill(folder: Path) -> None:
        comment = f"{_comment(node)} {whose}"
        node.host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(folder / KEY_NAME))

    made = make_once.make_once(node.host, f"{node.private}/{name}", fill)
    path = f"{node.private}/{name}/{KEY_NAME}"
    secret, public = node.host.read(path), (node.host.read(path + ".pub") or "").strip()
    if not secret or not public:
        raise StepError(f"{path} is incomplete")
    return made, Pair(secret, public)


def _comment(node: Node) -> str:
    """Return the end of the cluster's lines in authorized_keys, without a word."""
    return f"hyperpod {node.parameters.cluster_id}"


def _line(node: Node, pair: Pair, options: str = "") -> str:
    """Return a line of authorized_keys. If the nodes' address ranges are known, the key works only from them."""
    limit = f'from="{",".join(node.parameters.cidrs)}"' if node.parameters.cidrs else ""
    return " ".join([",".join(word for word in (limit, options) if word), pair.public]).strip()


def _set(node: Node, user: str, own: Optional[Pair], lines: List[str]) -> None:
    """Set the cluster's key that a user has here, if any, and the cluster's keys that admit as this user."""
    with ssh_folder.opened(node.host, user) as folder:
        if own:
            folder.write(KEY_NAME, own.secret, 0o600)
            folder.write(f"{KEY_NAME}.pub", own.public + "\n", 0o644)
        else:
            folder.remove(KEY_NAME)
            folder.remove(f"{KEY_NAME}.pub")
        before = folder.read(AUTHORIZED).splitlines()
        others = [line for line in before if f" {_comment(node)} " not in line]
        if before or lines:
            folder.write(AUTHORIZED, "".join(line + "\n" for line in [*others, *lines]), 0o600)


def _authorize(folder: ssh_folder.SshFolder, line: str) -> None:
    """Write one line for a person's key; other people's additions stay."""
    lines = folder.read(AUTHORIZED).splitlines()
    if line not in lines:
        lines = [old for old in lines if _key(old) != _key(line)] + [line]
    folder.write(AUTHORIZED, "\n".join(lines) + "\n", 0o600)


def _key(line: str) -> List[str]:
    """Return type and key of a line of authorized_keys, without options and comment."""
    words = line.split()
    start = next((i for i, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))), 0)
    return words[start : start + 2]


def _host_keys(node: Node) -> None:
    """Create the node's host keys, and publish their public halves for the other nodes."""
    host, folder = node.host, node.host.path(HOST_KEYS)
    if not any(folder.glob("ssh_host_*_key.pub")):
        host.run("ssh-keygen", "-A")
    keys = sorted(
        {" ".join(path.read_text(encoding="ascii").split()[:2]) for path in folder.glob("ssh_host_*_key.pub")}
    )
    if not keys:
        raise StepError(f"there is no host key in {HOST_KEYS}")
    names = ",".join([host.hostname(), node.identity.instance.address])
    host.write(f"{node.shared}/hosts/{host.hostname()}", "".join(f"{names} {key}\n" for key in keys))


def _known_hosts(node: Node) -> None:
    """Write all nodes' names and host keys to the shared file system, so that a later node is known everywhere at once.

    Nodes write the files at the same time. Each looks again after its own write: the last one to write sees all that
    came before, so nobody is lost.
    """
    host = node.host
    for _ in range(50):
        lines: List[str] = []
        for path in sorted(host.path(f"{node.shared}/hosts").iterdir()):
            if not path.name.startswith("."):
                text = host.read(f"{node.shared}/hosts/{path.name}") or ""
                # Names and a key; marks and patterns could mean other hosts (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").
                lines += [line for line in text.splitlines() if re.fullmatch(r"[\w.,-]+ \S+ \S+", line)]
        if not host.write(f"{node.shared}/known_hosts", "".join(line + "\n" for line in lines)):
            return
    raise StepError(f"{node.shared}/known_hosts keeps changing")


def _client(node: Node) -> None:
    """Write the settings for the cluster's own nodes; other hosts keep theirs."""
    host, name, address = node.host, "/etc/ssh/ssh_config", node.identity.instance.address
    old = host.read(name) or ""
    if "ssh_config.d" not in old:
        host.write(name, "Include /etc/ssh/ssh_config.d/*.conf\n" + old)
    # All nodes are in one subnet, which has 16 bits at least (VPC User Guide, "Subnet CIDR blocks").
    own = [host.hostname(), host_name(address), address]
    names = sorted({re.sub(r"\d+([-.])\d+$", r"*", one) for one in own})
    more = "".join(f"    IdentityFile ~/.ssh/{key}\n" for key in (OWN_KEYS if node.by_image else ()))
    host.write(CLIENT, CLIENT_TEXT.format(names=" ".join(names), shared=node.shared, more=more))


def _server(node: Node) -> None:
    host = node.host
    unit = "ssh" if any(host.path(f"{d}/systemd/system/ssh.service").exists() for d in ("/lib", "/usr/lib")) else "sshd"
    if "sshd_config.d" not in (host.read("/etc/ssh/sshd_config") or ""):
        node.warn("sshd reads no /etc/ssh/sshd_config.d; its own settings stay in force")
    changed = host.write(SERVER, SERVER_TEXT, mode=0o600)
    running = host.run("systemctl", "is-active", "--quiet", unit, check=False).code == 0
    if not running:
        host.run("systemctl", "start", unit)
    elif changed:
        host.run("systemctl", "reload", unit)

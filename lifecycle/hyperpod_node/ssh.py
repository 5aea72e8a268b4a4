"""SSH between the nodes without a prompt, and for nobody else: a cluster key of each user, host keys known beforehand.

Who has a user's key is that user on all nodes: root's is in root's folders alone, and does not let ubuntu become root.
"""

from __future__ import annotations

from pathlib import Path
from typing import List

from . import aws_cli, shared, ssh_folder
from .errors import Skip, StepError
from .model import Node

USERS = ("root", "ubuntu")
KEY_NAME = "id_hyperpod"
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
CLIENT_TEXT = """# Made by the HyperPod lifecycle scripts.
Host {names}
    IdentityFile ~/.ssh/id_hyperpod
    GlobalKnownHostsFile {shared}/known_hosts
    StrictHostKeyChecking yes
"""


def run(node: Node) -> str:
    """Step ``ssh``: key pairs, authorized keys, host keys, client and server settings."""
    made = []
    for user in _users(node):
        try:
            if _give(node, user):
                made.append(user)
        except StepError as error:
            # Somebody's folder is theirs; the cluster needs root's.
            if user == "root":
                raise
            node.warn(f"{user} has no key of the cluster: {error}")
    _host_keys(node)
    _known_hosts(node)
    _client(node)
    _server(node)
    return f"keys made for {', '.join(made)}" if made else "keys taken"


def users_key(node: Node) -> str:
    """Step ``users-key``: people's public key, from Parameter Store."""
    name = node.parameters.ssh_public_key_parameter
    if not name:
        raise Skip("no key is configured")
    try:
        answer = aws_cli.call(node, "ssm", "get-parameter", "--name", name)
    except aws_cli.Refused as refused:
        raise StepError(f"parameter {name}: {refused}") from None
    key = str(answer["Parameter"]["Value"]).strip()
    users = [user for user in _users(node) if user != "root"] or ["root"]
    for user in users:
        with ssh_folder.opened(node.host, user) as folder:
            _authorize(folder, key)
    return f"{name} may log in as {', '.join(users)}"


def _users(node: Node) -> List[str]:
    return [user for user in USERS if node.host.home(user) is not None]


def _new_pair(node: Node, user: str, folder: Path) -> None:
    comment = f"hyperpod {node.parameters.cluster_id} {user}"
    node.host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(folder / KEY_NAME))


def _give(node: Node, user: str) -> bool:
    """A user's own key pair, with which they are let in as themselves and as nobody else. True when it was made now."""
    host, name = node.host, f"ssh-{user}"
    made = shared.make_once(node, name, lambda folder: _new_pair(node, user, folder))
    pair = f"{node.private}/{name}/{KEY_NAME}"
    secret, public = host.read(pair), (host.read(pair + ".pub") or "").strip()
    if not secret or not public:
        raise StepError(f"{pair} is incomplete")
    with ssh_folder.opened(host, user) as folder:
        folder.write(KEY_NAME, secret, 0o600)
        folder.write(f"{KEY_NAME}.pub", public + "\n", 0o644)
        # The private half is on the nodes alone; where their address ranges are known it works from them alone.
        limit = f'from="{",".join(node.parameters.cidrs)}" ' if node.parameters.cidrs else ""
        _authorize(folder, limit + public)
    return made


def _authorize(folder: ssh_folder.SshFolder, line: str) -> None:
    """One line for a key; what others put into the file stays."""
    lines = folder.read(AUTHORIZED).splitlines()
    if line not in lines:
        lines = [old for old in lines if _key(old) != _key(line)] + [line]
    folder.write(AUTHORIZED, "\n".join(lines) + "\n", 0o600)


def _key(line: str) -> List[str]:
    """Type and key of a line of authorized_keys, without options and comment."""
    words = line.split()
    start = next((i for i, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))), 0)
    return words[start : start + 2]


def _host_keys(node: Node) -> None:
    """The node's own host keys, and their public halves where the other nodes find them."""
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
    """All nodes' names and host keys, on the shared file system, so that a later node is known everywhere at once.

    Nodes write the files at the same time. Each looks again after its own write: the last one to write sees all that
    were there before it, so nobody is lost.
    """
    host = node.host
    for _ in range(50):
        lines: List[str] = []
        for path in sorted(host.path(f"{node.shared}/hosts").iterdir()):
            if not path.name.startswith("."):
                lines += path.read_text(encoding="ascii").splitlines()
        names = sorted({name for line in lines for name in line.split()[0].split(",")})
        text = CLIENT_TEXT.format(names=" ".join(names), shared=node.shared)
        written = host.write(f"{node.shared}/known_hosts", "".join(line + "\n" for line in lines))
        written |= host.write(f"{node.shared}/ssh_config", text)
        if not written:
            return
    raise StepError(f"{node.shared}/known_hosts keeps changing")


def _client(node: Node) -> None:
    """What is said of the cluster's own nodes is on the shared file system; of all other hosts nothing is said."""
    host, name = node.host, "/etc/ssh/ssh_config"
    old = host.read(name) or ""
    if "ssh_config.d" not in old:
        host.write(name, "Include /etc/ssh/ssh_config.d/*.conf\n" + old)
    host.write(CLIENT, f"# Made by the HyperPod lifecycle scripts.\nInclude {node.shared}/ssh_config\n")


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

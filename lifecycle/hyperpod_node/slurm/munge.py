"""MUNGE: one key on all nodes, private to its daemon, and a daemon that accepts its own credentials."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..facts.model import Node
from ..host import make_once, units
from ..host.errors import NotYet, StepError
from ..host.host import Host

KEY = "/etc/munge/munge.key"
USER = "munge"
# munged(8): 32 to 1024 bytes; it refuses a key that other users may read.
KEY_BYTES = 1024
LEAST_BYTES = 32
MODES = (0o400, 0o600)
# Seconds for which the controller's digest may still be a predecessor's, with another key.
STALE = 20.0
# munged reads its key when it starts, and never again. A node that was off while the key was replaced takes the new one
# before that; the file system may be mounted only then.
MUNGED = """# Made by the HyperPod lifecycle scripts.
[Unit]
After=remote-fs.target

[Service]
ExecStartPre=-+{take}
TimeoutStartSec=150
"""


def published(private: str) -> str:
    """Return the cluster's own key on the shared file system. If it exists, it replaces the agent's."""
    return f"{private}/munge/munge.key"


def run(node: Node) -> str:
    """Step ``munge``."""
    host = node.host
    if host.home(USER) is None:
        raise StepError("MUNGE is not installed: there is no user munge")
    if node.by_image:
        accepts_its_own(host, node.timeout("image"))
        return f"the image's key, sha256 {digest(host)[:12]}"
    before = len(host.changes)
    origin = _controller(node) if node.role == "controller" else _other(node)
    # Another step may change its state; only the key and what belongs to it matter here.
    changed = any(name == KEY for name in host.changes[before:])
    take = f"{host.settings.install_folder}/bin/hyperpod-take-munge-key {published(node.private)}"
    host.write(f"{units.UNITS}/munge.service.d/10-hyperpod.conf", MUNGED.format(take=take))
    units.start(node.host, "munge", restart=changed)
    accepts_its_own(host, node.timeout("munge"))
    return f"{origin}, sha256 {digest(host)[:12]}"


def _controller(node: Node) -> str:
    """Use the cluster's own key, otherwise the one that HyperPod's agent put there, otherwise a new one."""
    host = node.host
    if _take(node):
        origin = "the cluster's key"
    elif host.path(KEY).exists():
        origin = "the key was there"
    else:
        made = make_once.make_once(node.host, f"{node.private}/munge", _new_key)
        # Published before it is used: a run that is killed in between finds it there and uses it.
        _take(node)
        origin = "key made for the cluster" if made else "the cluster's key"
    _check(node)
    # The digest with which other nodes compare their key.
    host.write(f"{node.private}/munge.sha256", digest(host) + "\n", mode=0o600)
    return origin


def _other(node: Node) -> str:
    """Use the key that the controller published, otherwise the one that HyperPod put here; the same as the
    controller's.
    """
    host = node.host

    def there() -> str:
        if _take(node):
            return "key taken from the controller"
        if host.path(KEY).exists():
            return "the key is the controller's"
        if host.read(f"{node.private}/munge.sha256"):
            raise StepError(
                f"no {KEY} here, and the controller's was put there by HyperPod's agent, "
                "which should have put the same one on this node"
            )
        raise NotYet("the controller has published none")

    origin = host.poll(f"no {KEY} and no key from the controller", there, node.timeout("controller"))
    _check(node)
    _compare(node)
    return origin


def _compare(node: Node) -> None:
    host = node.host

    def theirs() -> str:
        text = (host.read(f"{node.private}/munge.sha256") or "").strip()
        if not text:
            raise NotYet("it has published none")
        return text

    found = host.poll("the digest of the controller's MUNGE key was not there", theirs, node.timeout("controller"))
    if found == digest(host):
        return

    def same() -> bool:
        _take(node)
        own = digest(host)
        if theirs() == own:
            return True
        raise NotYet(f"sha256 {own[:12]} here, {theirs()[:12]} there")

    host.poll(f"{KEY} differs from the controller's", same, STALE)


def _new_key(folder: Path) -> None:
    descriptor = os.open(str(folder / "munge.key"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(KEY_BYTES))


def _take(node: Node) -> bool:
    """Use the published key. Return False without one."""
    key = node.host.read_bytes(published(node.private))
    if key is None:
        return False
    node.host.folder("/etc/munge", mode=0o700, owner=USER)
    node.host.write_bytes(KEY, key, mode=0o400, owner=USER)
    return True


def _check(node: Node) -> None:
    """Check owner, mode and length. A wrong owner or mode is corrected and reported."""
    host = node.host
    size = host.path(KEY).stat().st_size
    if size < LEAST_BYTES:
        raise StepError(f"{KEY} has {size} bytes; munged wants at least {LEAST_BYTES}")
    mode, owner = host.path(KEY).stat().st_mode & 0o777, host.owner(KEY)
    if mode not in MODES or owner != USER:
        node.warn(f"{KEY} belonged to {owner} with mode {mode:04o}; now {USER}, 0400")
        host.secure(KEY, 0o400, USER)


def digest(host: Host) -> str:
    """Return the SHA-256 of this node's key; empty without one."""
    key = host.read_bytes(KEY)
    return "" if key is None else hashlib.sha256(key).hexdigest()


def accepts_its_own(host: Host, seconds: float) -> None:
    """Wait until a credential sealed here opens here. Raises StepError."""

    def sealed() -> bool:
        credential = host.run("munge", "-n", check=False, timeout=5)
        if credential.code != 0:
            raise NotYet(credential.reason)
        opened = host.run("unmunge", check=False, timeout=5, stdin=credential.out)
        if opened.code != 0:
            raise NotYet(opened.reason)
        return True

    host.poll("MUNGE does not accept its own credential", sealed, seconds)

"""MUNGE: one key on all nodes, private to its daemon, and a daemon that accepts what it has sealed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from . import shared, units
from .errors import NotYet, StepError
from .model import Node

KEY = "/etc/munge/munge.key"
USER = "munge"
# munged(8): 32 to 1024 bytes; it refuses a key that other users may read.
KEY_BYTES = 1024
LEAST_BYTES = 32
MODES = (0o400, 0o600)
# Seconds for which the controller's digest may still be a predecessor's, with another key.
STALE = 20.0


def run(node: Node) -> str:
    """Step ``munge``."""
    host = node.host
    if host.home(USER) is None:
        raise StepError("MUNGE is not installed: there is no user munge")
    before = len(host.changes)
    origin = _controller(node) if node.role == "controller" else _other(node)
    # Another step may change its state; only the key and what belongs to it matter here.
    changed = any(name == KEY for name in host.changes[before:])
    _daemon(node, changed)
    return f"{origin}, sha256 {_digest(node)[:12]}"


def _controller(node: Node) -> str:
    """The key that HyperPod's agent put there, or the one made for the cluster, made now if there is none."""
    host, published = node.host, f"{node.private}/munge/munge.key"
    if host.path(KEY).exists():
        origin = "the key was there"
    else:
        made = shared.make_once(node, "munge", _new_key)
        # Published before it is used: a run that is killed in between finds it there and uses it.
        _install(node, published)
        origin = "key made for the cluster" if made else "the cluster's key"
    _check(node)
    host.write(f"{node.private}/munge.sha256", _digest(node) + "\n", mode=0o600)
    return origin


def _other(node: Node) -> str:
    """Check the key against the controller's; where HyperPod put none, take the one the controller published."""
    host, published = node.host, f"{node.private}/munge/munge.key"
    origin = "the key is the controller's"
    if not host.path(KEY).exists():

        def there() -> bool:
            if host.path(published).exists():
                return True
            if host.read(f"{node.private}/munge.sha256"):
                raise StepError(
                    f"no {KEY} here, and the controller's was put there by HyperPod's agent, "
                    "which should have put the same one on this node"
                )
            raise NotYet("the controller has published none")

        host.poll(f"no {KEY} and no key from the controller", there, node.timeout("controller"))
        _install(node, published)
        origin = "key taken from the controller"
    _check(node)
    _compare(node)
    return origin


def _compare(node: Node) -> None:
    host, own = node.host, _digest(node)
    name = f"{node.private}/munge.sha256"

    def published() -> str:
        text = (host.read(name) or "").strip()
        if not text:
            raise NotYet("it has published none")
        return text

    theirs = host.poll("the digest of the controller's MUNGE key was not there", published, node.timeout("controller"))
    if theirs == own:
        return

    def same() -> bool:
        if published() == own:
            return True
        raise NotYet(f"sha256 {own[:12]} here, {published()[:12]} there")

    host.poll(f"{KEY} differs from the controller's", same, STALE)


def _new_key(folder: Path) -> None:
    descriptor = os.open(str(folder / "munge.key"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(KEY_BYTES))


def _install(node: Node, published: str) -> None:
    node.host.folder("/etc/munge", mode=0o700, owner=USER)
    node.host.write_bytes(KEY, node.host.path(published).read_bytes(), mode=0o400, owner=USER)


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


def _digest(node: Node) -> str:
    return hashlib.sha256(node.host.path(KEY).read_bytes()).hexdigest()


def _daemon(node: Node, changed: bool) -> None:
    """The daemon runs with this key: something sealed here opens here."""
    host = node.host
    units.start(node, "munge", restart=changed)

    def sealed() -> bool:
        credential = host.run("munge", "-n", check=False, timeout=5)
        if credential.code != 0:
            raise NotYet(credential.reason)
        opened = host.run("unmunge", check=False, timeout=5, stdin=credential.out)
        if opened.code != 0:
            raise NotYet(opened.reason)
        return True

    host.poll("MUNGE does not accept its own credential", sealed, node.timeout("munge"))

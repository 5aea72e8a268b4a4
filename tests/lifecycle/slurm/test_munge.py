"""MUNGE: one key for all nodes, made once and private, and a daemon that accepts what it has sealed."""

import pytest
from hyperpod_node.facts.model import Node
from hyperpod_node.host import make_once
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import munge
from hyperpod_node.storage import fsx

from tests.lifecycle.rig import FakeHost, World

KEY = "/etc/munge/munge.key"


def ready(host: FakeHost) -> Node:
    node = host.node()
    fsx.run(node)
    node.enter("keys")
    return node


def test_the_agents_key_is_taken_and_compared_on_every_node(world: World) -> None:
    assert munge.run(ready(world.node("controller"))).startswith("the key was there")
    worker = world.node("worker")
    assert munge.run(ready(worker)).startswith("the key is the controller's")
    assert "munge" in worker.active
    assert worker.ran("unmunge")
    assert not (world.shared / ".hyperpod/private/munge").exists()


def test_another_key_than_the_controllers_fails_with_both_digests(world: World) -> None:
    munge.run(ready(world.node("controller")))
    worker = world.node("worker")
    worker.path(KEY).chmod(0o600)
    worker.path(KEY).write_text("x" * 128)
    with pytest.raises(
        StepError,
        match=r"^/etc/munge/munge.key differs from the controller's within 20 s: sha256 \w{12} here, \w{12} there$",
    ):
        munge.run(ready(worker))


def test_the_digest_of_a_replaced_controller_is_waited_out(world: World) -> None:
    worker = world.node("worker")
    node = ready(worker)
    stale = world.shared / ".hyperpod/private/munge.sha256"
    stale.write_text("0" * 64)
    controller = ready(world.node("controller"))
    worker.on_sleep = lambda: setattr(world, "said", munge.run(controller))
    munge.run(node)


def test_without_a_key_the_controller_makes_one_and_the_others_take_it(world: World) -> None:
    hosts = {role: world.node(role) for role in ("controller", "login", "worker")}
    for host in hosts.values():
        host.path(KEY).unlink()
        node = ready(host)
        origin = "key made for the cluster" if node.role == "controller" else "key taken from the controller"
        assert munge.run(node) == f"{origin}, sha256 {munge.digest(host)[:12]}"
        assert not node.warnings, "nothing of it has to be put right"
    keys = {host.path(KEY).read_bytes() for host in hosts.values()}
    assert len(keys) == 1
    # mungekey(8): 256 to 8192 bits.
    assert 32 <= len(keys.pop()) <= 1024
    for host in hosts.values():
        assert host.path(KEY).stat().st_mode & 0o777 == 0o400
        assert host.owner(KEY) == "munge"
    assert (world.shared / ".hyperpod/private/munge/munge.key").stat().st_mode & 0o077 == 0


def test_a_controller_killed_between_publishing_and_installing_uses_the_published_key(world: World) -> None:
    host = world.node("controller")
    host.path(KEY).unlink()
    node = ready(host)
    make_once.make_once(node.host, f"{node.private}/munge", munge._new_key)
    published = (world.shared / ".hyperpod/private/munge/munge.key").read_bytes()
    assert munge.run(node).startswith("the cluster's key")
    assert host.path(KEY).read_bytes() == published


def test_a_worker_without_the_agents_key_names_who_should_have_delivered_it(world: World) -> None:
    munge.run(ready(world.node("controller")))
    worker = world.node("worker")
    worker.path(KEY).unlink()
    said = "was put there by HyperPod's agent, which should have put the same one on this node"
    with pytest.raises(StepError, match=rf"^no {KEY} here, and the controller's {said}$"):
        munge.run(ready(worker))


def test_a_worker_without_a_key_waits_for_the_controllers(world: World) -> None:
    worker = world.node("worker", patience=9.0)
    worker.path(KEY).unlink()
    said = "within 9 s: the controller has published none"
    with pytest.raises(StepError, match=rf"^no {KEY} and no key from the controller {said}$"):
        munge.run(ready(worker))


@pytest.mark.parametrize(("mode", "owner"), [(0o644, "root"), (0o644, "munge"), (0o400, "root")])
def test_a_key_with_the_wrong_owner_or_mode_is_corrected_and_reported(mode: int, owner: str, world: World) -> None:
    host = world.node("controller")
    host.path(KEY).chmod(mode)
    if owner == "root":
        host.owners.clear()
    node = ready(host)
    munge.run(node)
    assert (host.path(KEY).stat().st_mode & 0o777, host.owner(KEY)) == (0o400, "munge")
    assert node.warnings["keys"] == [f"{KEY} belonged to {owner} with mode {mode:04o}; now munge, 0400"]


def test_a_daemon_that_ran_with_another_key_is_restarted_and_enabled_at_boot(world: World) -> None:
    host = world.node("controller")
    host.path(KEY).unlink()
    host.active.add("munge")
    munge.run(ready(host))
    assert "munge" in host.enabled
    assert host.ran("systemctl", "restart", "munge")


def test_what_others_compare_the_key_with_is_for_nodes_alone(world: World) -> None:
    munge.run(ready(world.node("controller")))
    assert (world.shared / ".hyperpod/private/munge.sha256").stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_too_short_fails(world: World) -> None:
    host = world.node("controller")
    host.path(KEY).chmod(0o600)
    host.path(KEY).write_text("short")
    with pytest.raises(StepError, match=rf"^{KEY} has 5 bytes; munged wants at least 32$"):
        munge.run(ready(host))


def test_a_daemon_that_does_not_accept_its_own_credential_fails(world: World) -> None:
    host = world.node("controller")
    host.fail["unmunge"] = Result(15, "", "unmunge: Error: Expired credential")
    with pytest.raises(
        StepError, match=r"^MUNGE does not accept its own credential within 20 s: unmunge: Error: Expired credential$"
    ):
        munge.run(ready(host))


def test_a_controller_that_never_publishes_ends_the_wait(world: World) -> None:
    with pytest.raises(
        StepError, match=r"^the digest of the controller's MUNGE key was not there within 30 s: it has published none$"
    ):
        munge.run(ready(world.node("worker", patience=30.0)))


def test_a_running_daemon_with_an_unchanged_key_is_left_alone(world: World) -> None:
    host = world.node("controller")
    munge.run(ready(host))
    host.calls.clear()
    munge.run(ready(host))
    assert not host.ran("systemctl", "start", "munge")
    assert not host.ran("systemctl", "restart", "munge")


def test_an_image_without_munge_is_named(world: World) -> None:
    host = world.node("controller")
    node = ready(host)
    host.home = lambda user: None  # type: ignore[method-assign]
    with pytest.raises(StepError, match=r"^MUNGE is not installed: there is no user munge$"):
        munge.run(node)

"""The queue on the shared file system, and the controllers that share it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence

import pytest
from hyperpod_node import requeue, slurm, slurm_configure, slurm_controllers
from hyperpod_node.host import Result
from hyperpod_node.metrics import facts_file, writer
from hyperpod_node.metrics import node as metrics_node
from hyperpod_node.model import Instance

from tests.lifecycle.rig import FakeHost, Killed, World
from tests.lifecycle.slurm_rig import ready, two_controllers

STATE = "/var/spool/slurmctld"
BOTH = "Slurmctld(primary) at ip-10-1-0-10 is {}\nSlurmctld(backup) at ip-10-1-0-20 is {}\n"
NAMED = "SlurmctldHost=ip-10-1-0-10(10.1.0.10)\nSlurmctldHost=ip-10-1-0-20(10.1.0.20)\n"


@pytest.fixture
def sharing(world: World) -> World:
    """A cluster with the queue on its file system."""
    world.settings = {"slurm": {"sharedQueue": True}}
    world.render()
    return world


def controller(world: World, address: str = "10.1.0.10", saved: bool = False) -> FakeHost:
    """A controller's image, with a queue of its own or without; with node.json as an earlier step leaves it."""
    host = world.node("controller", address=address)
    host.path("/opt/slurm/etc").mkdir(parents=True, exist_ok=True)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    others = f"ClusterName=mine\nSlurmctldHost=ip-{address.replace('.', '-')}({address})\nStateSaveLocation={STATE}\n"
    conf.write_text(others + "PartitionName=dev Nodes=ALL Default=YES\n")
    host.path(STATE).mkdir(parents=True, exist_ok=True)
    if saved:
        host.path(f"{STATE}/job_state").write_text("one job")
    host.write("/etc/hyperpod/node.json", json.dumps({"shared_queue": True, "address": address, "role": "controller"}))
    host.commands["chown"] = lambda h, args, stdin: Result(0)
    return host


def test_the_queue_is_on_the_file_system_and_nobody_else_reads_it(sharing: World) -> None:
    host = controller(sharing)
    slurm.run(ready(host))
    state = sharing.shared / ".hyperpod/slurm/state"
    assert str(host.path(STATE).readlink()) == "/fsx/.hyperpod/slurm/state"
    assert state.stat().st_mode & 0o777 == 0o700
    # When the machine stops, the last of the queue is written before the file system goes (systemd, mount.c: the unit
    # of an automount is not before remote-fs.target).
    assert "After=remote-fs.target fsx.mount\n" in host.text("/etc/systemd/system/slurmctld.service.d/20-hyperpod.conf")
    assert not host.ran("scontrol", "reconfigure")
    again = sharing.node("controller")
    before = list(host.path("/var/spool").iterdir())
    slurm.run(ready(again))
    assert list(host.path("/var/spool").iterdir()) == before


def test_a_queue_that_was_on_the_disk_is_taken_along_wherever_the_script_is_killed(sharing: World) -> None:
    killed = 0
    while True:
        host = sharing.node("controller") if killed else controller(sharing, saved=True)
        host.commands["chown"] = lambda h, args, stdin: Result(0)
        node = ready(host)
        host.operations, host.kill_at = 0, killed + 1
        try:
            slurm.run(node)
        except Killed:
            killed += 1
            continue
        break
    assert killed > 10
    assert (sharing.shared / ".hyperpod/slurm/state/job_state").read_text() == "one job"
    assert host.path(STATE).is_symlink()


def test_a_queue_that_slurmctld_writes_to_is_not_copied_before_it_has_stopped(sharing: World) -> None:
    host = controller(sharing, saved=True)
    host.active.add("slurmctld")
    slurm.run(ready(host))
    asked = [call for call in host.calls if "slurmctld" in call and call[1] in ("stop", "start", "restart")]
    assert asked[0] == ("systemctl", "stop", "slurmctld")
    (made,) = [call for call in host.calls if call[0] == "chown"]
    assert made[:3] == ("chown", "-R", "root:")
    assert host.calls.index(asked[0]) < host.calls.index(made) < host.calls.index(asked[1])
    assert "slurmctld" in host.active


def replacement(world: World) -> FakeHost:
    """A fresh controller with another address and instance in the place of the first."""
    fresh = controller(world, "10.1.0.30", saved=True)
    document = json.loads(fresh.text(fresh.settings.resource_config))
    document["InstanceGroups"][0]["Instances"][0].update(CustomerIpAddress="10.1.0.30", InstanceId="i-10.1.0.30")
    fresh.path(fresh.settings.resource_config).write_text(json.dumps(document))
    return fresh


def test_the_shared_queue_wins_over_that_of_a_fresh_disk(sharing: World) -> None:
    slurm.run(ready(controller(sharing, saved=True)))
    state = sharing.shared / ".hyperpod/slurm/state/job_state"
    state.write_text("two jobs")
    fresh = replacement(sharing)
    slurm.run(ready(fresh))
    assert state.read_text() == "two jobs"
    assert fresh.text(f"{STATE}.local/job_state") == "one job"
    # Its workers know the other address.
    assert fresh.ran("scontrol", "reconfigure")
    assert json.loads((sharing.shared / ".hyperpod/slurm/controller.json").read_text())["address"] == "10.1.0.30"


@pytest.mark.parametrize(("failures", "warned"), [(3, False), (10_000, True)])
def test_a_controller_that_takes_over_tells_the_workers_as_soon_as_it_can(
    sharing: World, failures: int, warned: bool
) -> None:
    """It answers before it is in control, and then it takes no new configuration."""
    slurm.run(ready(controller(sharing)))
    fresh = replacement(sharing)
    answer, left = fresh.commands["scontrol"], [failures]

    def busy(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if args[1] == "reconfigure" and left[0]:
            left[0] -= 1
            return Result(1, "", "Slurm backup controller in standby mode")
        return answer(host, args, stdin)

    fresh.commands["scontrol"] = busy
    node = ready(fresh)
    slurm.run(node)
    assert bool(left[0]) == warned
    said = "".join(line for lines in node.warnings.values() for line in lines)
    assert ("in standby mode: nodes may know the controller of before" in said) == warned


def test_without_the_key_the_queue_stays_on_the_disk(world: World) -> None:
    host = controller(world, saved=True)
    host.write("/etc/hyperpod/node.json", "{}")
    slurm.run(ready(host))
    assert host.text(f"{STATE}/job_state") == "one job"
    assert "Slurmctld" not in host.text("/opt/slurm/etc/hyperpod.conf").replace("SlurmctldParameters", "")


def test_each_controller_names_both_in_the_same_order(sharing: World) -> None:
    for address in ("10.1.0.10", "10.1.0.20"):
        host = controller(sharing, address)
        two_controllers(host)
        assert slurm_configure.configure(host, ready(host).parameters.groups, ready(host).identity.instances, "/x")
        text = host.text("/opt/slurm/etc/slurm.conf")
        assert NAMED in text, address
        assert len(re.findall("SlurmctldHost", text)) == 2
        assert "SlurmctldTimeout=10" in host.text("/opt/slurm/etc/hyperpod.conf")


def test_controllers_have_the_order_of_hyperpods_numbers(sharing: World) -> None:
    groups = sharing.node("controller").node().parameters.groups
    names = ["controller-10", "controller-2", "controller-1"]
    found = slurm_controllers.ordered([Instance("controller", name, "10.1.0.1", name) for name in names], groups)
    assert [one.name for one in found] == ["controller-1", "controller-2", "controller-10"]


def test_the_second_controller_waits_for_the_first_ones_queue_and_then_for_its_own_daemon(sharing: World) -> None:
    host = controller(sharing, "10.1.0.20")
    two_controllers(host)
    node = ready(host)
    heartbeat = sharing.shared / ".hyperpod/slurm/state/heartbeat"

    def later() -> None:
        if not heartbeat.exists():
            assert "slurmctld" not in host.active
            if host.clock > 1030:
                heartbeat.write_text("")

    answers = iter([BOTH.format("UP", "DOWN"), BOTH.format("UP", "UP")])
    host.commands["scontrol"] = lambda h, args, stdin: Result(0, next(answers) if args[1] == "ping" else "")
    host.on_sleep = later
    slurm.run(node)
    assert heartbeat.exists()
    assert next(answers, "") == ""


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [("UP", "UP", "10.1.0.10"), ("DOWN", "UP", "10.1.0.20"), ("UP", "DOWN", "10.1.0.10"), ("DOWN", "DOWN", "")],
)
def test_the_first_that_answers_is_in_control(sharing: World, first: str, second: str, wanted: str) -> None:
    for address in ("10.1.0.10", "10.1.0.20"):
        host = controller(sharing, address)
        host.fail["scontrol"] = Result(1, BOTH.format(first, second))
        assert slurm_controllers.in_control(host) == (address == wanted)


def test_who_is_not_in_control_sets_no_node_down_and_counts_no_job(sharing: World) -> None:
    host = controller(sharing, "10.1.0.20")
    host.fail["scontrol"] = Result(0, BOTH.format("UP", "UP"))
    watch = requeue.Watch(host, lambda found: set(), list, 10.0, print)
    look = slurm_controllers.in_turn(host, {"shared_queue": True}, watch.round)
    look()
    look()
    assert [call[0] for call in host.calls] == ["scontrol"]
    names = [field.name for field in dataclasses.fields(metrics_node.Facts)]
    document = dict.fromkeys(names, "") | {"role": "controller"}
    host.write(facts_file(host), json.dumps(document))
    assert writer.PARTS["node"]["slurm"](host) == []


def test_a_trial_on_the_second_controller_waits_for_no_other() -> None:
    text = f"ClusterName=mine\n{NAMED}NodeName=a\n"
    assert slurm_controllers.alone(text, "ip-10-1-0-20") == text.replace("SlurmctldHost=ip-10-1-0-10(10.1.0.10)\n", "")
    assert slurm_controllers.alone(text, "ip-10-1-0-2") == text

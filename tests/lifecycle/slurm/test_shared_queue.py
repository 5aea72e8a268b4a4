"""The queue on the shared file system."""

import json
from collections.abc import Sequence

import pytest
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import controller as slurm

from tests.lifecycle.rig import FakeHost, Killed, World
from tests.lifecycle.slurm_rig import ready, two_controllers

STATE = "/var/spool/slurmctld"


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
    slurm.run(ready(host))
    assert host.text(f"{STATE}/job_state") == "one job"
    assert "Slurmctld" not in host.text("/opt/slurm/etc/hyperpod.conf").replace("SlurmctldParameters", "")


def test_another_controller_that_slurm_conf_does_not_name_is_kept_from_the_queue(sharing: World) -> None:
    """Two daemons that do not know each other would destroy it."""
    slurm.run(ready(controller(sharing)))
    rival = controller(sharing, "10.1.0.20")
    two_controllers(rival)
    with pytest.raises(StepError, match="two controllers claim the cluster"):
        slurm.run(ready(rival))
    assert "slurmctld" not in rival.active
    assert not rival.path(STATE).is_symlink()

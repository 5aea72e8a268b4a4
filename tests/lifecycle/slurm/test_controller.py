"""Slurm's controller and the login nodes."""

import json

import pytest
from hyperpod_node.host import make_once
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import controller

from tests.lifecycle.rig import SLURM_CONF, FakeHost, World
from tests.lifecycle.slurm_rig import ready, two_controllers

CLAIMED_ELSEWHERE = (
    r"^this node \(ip-10-1-0-10, 10\.1\.0\.10\) is a controller by its group, and slurm\.conf names "
    r"10\.1\.0\.99, ip-10-1-0-99: two controllers claim the cluster$"
)

# The controller


@pytest.mark.parametrize("image", ["", "SlurmctldHost=localhost\n"])
def test_slurmctld_does_not_start_with_the_images_own_configuration(world: World, image: str) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    agents = conf.read_text()
    conf.write_text("ClusterName=template\n" + image)
    node, began = ready(host), host.clock

    def later() -> None:
        assert "slurmctld" not in host.active
        if host.clock > began + 20:
            conf.write_text(agents)
            host.on_sleep = lambda: None

    host.on_sleep = later
    controller.run(node)
    assert "slurmctld" in host.active
    assert "ClusterName=mine" in conf.read_text()


def test_the_controller_answers_before_the_step_ends(world: World) -> None:
    host = world.node("controller")
    controller.run(ready(host))
    assert {"slurmctld", "hyperpod-requeue"} <= host.active
    assert "ConditionPathExists=/etc/hyperpod/runs-slurmd" in host.text(
        "/etc/systemd/system/slurmd.service.d/10-hyperpod.conf"
    )
    assert "TaskProlog=/opt/hyperpod/bin" in (world.shared / ".hyperpod/slurm/slurm.conf").read_text()


def test_a_controller_that_runs_already_is_restarted_only_for_a_new_configuration(world: World) -> None:
    host = world.node("controller")
    host.active.add("slurmctld")
    controller.run(ready(host))
    assert host.ran("systemctl", "restart", "slurmctld")
    assert host.ran("scontrol", "reconfigure")
    again = world.node("controller")
    controller.run(ready(again))
    assert not again.ran("systemctl", "restart", "slurmctld")
    assert not again.ran("scontrol", "reconfigure")


def test_a_slurm_conf_that_the_agent_never_wrote_ends_the_wait(world: World) -> None:
    host = world.node("controller")
    host.path("/opt/slurm/etc/slurm.conf").unlink()
    with pytest.raises(StepError, match=r"HyperPod's agent did not write /opt/slurm/etc/slurm.conf within 300 s"):
        controller.run(ready(host))


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (4096, r"the disk of /var/spool/slurmctld is full, 4096 bytes are free$"),
        (1 << 30, r"cannot write to /var/spool/slurmctld: Not a directory; 1073741824 bytes are free$"),
    ],
    ids=["full", "unwritable"],
)
def test_a_controller_that_could_save_no_state_says_which_disk_and_starts_no_slurmctld(
    world: World, monkeypatch: pytest.MonkeyPatch, left: int, why: str
) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "StateSaveLocation=/var/spool/slurmctld\n")
    if "Not a" in why:
        host.write("/var/spool/slurmctld", "a file where a folder should be")
    monkeypatch.setattr(host, "free", lambda name: left if name == "/var/spool/slurmctld" else 0)
    with pytest.raises(StepError, match=f"^slurmctld cannot save its state: {why}"):
        controller.run(ready(host))
    assert "slurmctld" not in host.active


def test_slurmctld_that_does_not_answer_fails(world: World) -> None:
    host = world.node("controller")
    stars = "*" * 41 + "\n"
    text = f"Slurmctld(primary) at ip-10-1-0-10 is DOWN\n{stars}** RESTORE SLURMCTLD DAEMON TO SERVICE **\n{stars}"
    host.fail["scontrol"] = Result(1, text)
    with pytest.raises(StepError, match=r"ping` within 300 s: Slurmctld\(primary\) at ip-10-1-0-10 is DOWN$"):
        controller.run(ready(host))


def test_a_slurmctld_that_ended_says_its_own_reason(world: World) -> None:
    host = world.node("controller")
    host.fail["scontrol"] = Result(1, "Slurmctld(primary) at ip-10-1-0-10 is DOWN\n")
    host.commands["systemctl"] = lambda h, args, stdin: Result(3 if args[1] == "is-active" else 0)
    log = "[2026] error: first\n[2026] fatal: No switches configured\n[2026] error: later\n"
    host.path("/var/log/slurm").mkdir(parents=True)
    host.path("/var/log/slurm/slurmctld.log").write_text(log)
    reason = r"is DOWN; slurmctld is not running: slurmctld: fatal: No switches configured$"
    with pytest.raises(StepError, match=reason):
        controller.run(ready(host))


def test_a_second_controller_that_slurm_conf_does_not_name_is_refused(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ip-10-1-0-10(10.1.0.10)", "ip-10-1-0-99(10.1.0.99)"))
    with pytest.raises(StepError, match=CLAIMED_ELSEWHERE):
        controller.run(ready(host))


@pytest.mark.parametrize(("addresses", "warned"), [(["10.1.0.10"], False), ([], True)])
def test_a_controller_that_slurm_conf_calls_by_another_name_is_still_it(
    world: World, addresses: list[str], warned: bool
) -> None:
    world.names["head"] = addresses
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ip-10-1-0-10(10.1.0.10)", "head"))
    node = ready(host)
    controller.run(node)
    unknown = "this node (ip-10-1-0-10, 10.1.0.10) takes it for itself"
    told = [f"slurm.conf names head as controller, which does not resolve; {unknown}"] if warned else []
    assert node.warnings.get("slurm", []) == told


def test_two_controllers_that_each_name_only_themselves_are_refused(world: World) -> None:
    host = world.node("controller")
    two_controllers(host)
    node = ready(host)
    claim = world.shared / ".hyperpod/slurm/controller.json"
    claim.write_text('{"instance_id": "i-2", "hostname": "ip-10-1-0-20", "address": "10.1.0.20"}')
    rival = r"and i-2 \(ip-10-1-0-20\), which slurm.conf here does not name$"
    with pytest.raises(
        StepError, match=rf"^two controllers claim the cluster: this one \(i-\d+, ip-10-1-0-10\) {rival}"
    ):
        controller.run(node)


def test_of_two_controllers_that_claim_at_the_same_time_one_has_the_claim(world: World) -> None:
    host, name = world.node("controller"), "/var/lib/shared/controller.json"
    # Both have looked, and found none.
    assert make_once.write_once(host, name, "one")
    assert not make_once.write_once(host, name, "other")
    assert host.text(name) == "one"
    assert [path.name for path in host.path(name).parent.iterdir()] == ["controller.json"]


def test_two_controllers_that_slurm_conf_names_both_are_fine(world: World) -> None:
    host = world.node("controller")
    two_controllers(host)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("NodeName", "SlurmctldHost=ip-10-1-0-20(10.1.0.20)\nNodeName", 1))
    node = ready(host)
    (world.shared / ".hyperpod/slurm/controller.json").write_text(
        '{"instance_id": "i-2", "hostname": "ip-10-1-0-20", "address": "10.1.0.20"}'
    )
    controller.run(node)


def test_the_claim_of_a_replaced_controller_is_taken_over(world: World) -> None:
    host = world.node("controller")
    node = ready(host)
    claim = world.shared / ".hyperpod/slurm/controller.json"
    claim.write_text('{"instance_id": "i-gone", "hostname": "ip-10-1-0-77", "address": "10.1.0.77"}')
    controller.run(node)
    assert json.loads(claim.read_text())["hostname"] == "ip-10-1-0-10"
    assert host.ran("scontrol", "reconfigure"), "nodes of the one before learn where it is"


def test_a_task_prolog_of_somebody_else_is_said(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("TaskProlog=/opt/other\n" + conf.read_text())
    node = ready(host)
    controller.run(node)
    assert "has a TaskProlog of its own (/opt/other)" in node.warnings["slurm"][0]
    assert "TaskProlog" not in host.text("/opt/slurm/etc/hyperpod.conf")


def accounting(host: FakeHost, name: str) -> None:
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("Include accounting.conf\n" + conf.read_text())
    text = f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost={name}\n"
    host.path("/opt/slurm/etc/accounting.conf").write_text(text)
    host.path("/etc/systemd/system/slurmdbd.service").parent.mkdir(parents=True, exist_ok=True)
    host.path("/etc/systemd/system/slurmdbd.service").write_text("[Service]\nExecStart=slurmdbd -D\n")


@pytest.mark.parametrize("name", ["localhost", "ip-10-1-0-10", "ip-10-1-0-10.ec2.internal", "10.1.0.10"])
def test_slurmctld_starts_after_hyperpods_accounting_daemon(world: World, name: str) -> None:
    host = world.node("controller")
    accounting(host, name)
    controller.run(ready(host))
    started = [call[-1] for call in host.calls if call[:2] == ("systemctl", "start")]
    assert started.index("slurmdbd") < started.index("slurmctld")


def test_accounting_elsewhere_is_waited_for_and_a_daemon_that_does_not_answer_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = world.node("controller")
    accounting(host, "database")
    asked = []
    monkeypatch.setattr(host, "answers", lambda *where: asked.append(where))
    with pytest.raises(StepError, match=r"no slurmdbd answered at database:6819, which slurm.conf names within 300 s"):
        controller.run(ready(host))
    assert set(asked) == {("database", 6819)}
    assert "slurmdbd" not in host.active


def test_a_login_node_that_slurmctld_still_lists_is_hidden(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "NodeName=ip-10-1-0-11 NodeAddr=10.1.0.11 State=CLOUD\n")
    controller.run(ready(host))
    assert host.ran("scontrol", "update", "NodeName=ip-10-1-0-11", "State=FUTURE")


def test_what_the_agent_writes_is_settled_before_slurmctld_starts_again(world: World) -> None:
    host = world.node("controller")
    controller.run(ready(host))
    drop_in = host.text("/etc/systemd/system/slurmctld.service.d/20-hyperpod.conf")
    assert "\nExecStartPre=-+/opt/hyperpod/bin/hyperpod-settle /opt/slurm/etc/slurm.conf\n" in drop_in
    assert "\nRestart=on-failure\n" in drop_in
    assert not host.ran("scontrol", "reconfigure")


# A login node


def test_a_login_node_does_not_take_the_images_configuration_for_its_own(world: World) -> None:
    controller.run(ready(world.node("controller")))
    host = world.node("login")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("ClusterName=template\nSlurmctldHost=localhost\n")
    assert controller.run(ready(host)).endswith("by the controller's configuration")
    assert str(conf.readlink()) == "/fsx/.hyperpod/slurm/slurm.conf"


def test_a_login_node_waits_for_a_configuration_that_names_a_controller(world: World) -> None:
    host = world.node("login", patience=30.0)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("ClusterName=template\n")
    with pytest.raises(StepError, match=r"neither /opt/slurm/etc/slurm.conf named a controller nor its copy .* 30 s"):
        controller.run(ready(host))


@pytest.mark.parametrize("name", ["ip-10-1-0-10", "ip-10-1-0-10.ec2.internal", "head", "10.1.0.10"])
def test_a_login_node_knows_its_controller_by_any_of_its_names(world: World, name: str) -> None:
    world.names["head"] = ["10.1.0.10"]
    host = world.node("login")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"ClusterName=mine\nSlurmctldHost={name}\n")
    assert controller.run(ready(host)).endswith("by its own configuration")


def test_a_login_node_without_a_configuration_uses_the_controllers(world: World) -> None:
    controller.run(ready(world.node("controller")))
    host = world.node("login")
    assert controller.run(ready(host)).endswith("by the controller's configuration")
    link = host.path("/opt/slurm/etc/slurm.conf")
    assert str(link.readlink()) == "/fsx/.hyperpod/slurm/slurm.conf"
    assert "JobRequeue=1" in (world.shared / ".hyperpod/slurm/slurm.conf").read_text()
    assert not host.active


def test_a_login_node_with_the_agents_configuration_keeps_it(world: World) -> None:
    host = world.node("login")
    host.path("/opt/slurm/etc").mkdir(parents=True)
    host.path("/opt/slurm/etc/slurm.conf").write_text(SLURM_CONF)
    assert controller.run(ready(host)).endswith("by its own configuration")

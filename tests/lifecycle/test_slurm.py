"""Slurm's configuration, ours and the agent's, and the daemons of each kind of node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hyperpod_node import fsx, slurm, slurm_conf, slurm_configure
from hyperpod_node.errors import StepError
from hyperpod_node.host import Result
from hyperpod_node.model import Group, Instance, Node

from tests.lifecycle.rig import SLURM_CONF, FakeHost, World, group

BIN = "/opt/hyperpod/bin"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ready(host: FakeHost) -> Node:
    node = host.node()
    fsx.run(node)
    node.enter("slurm")
    return node


def groups(**types: str) -> dict[str, Group]:
    return {
        name: Group(**{**group(name, "worker", kind), "partition": "gpu"}) for name, kind in types.items()
    }  # fmt: skip


P5 = groups(workers="ml.p5.48xlarge")


# The files


def test_what_slurm_conf_sets_itself_is_not_set_again() -> None:
    conf = slurm_conf.parse("ReturnToService=1\nJobRequeue=1\nSlurmctldParameters=enable_configless\nGresTypes=gpu\n")
    text = slurm_conf.render(conf, P5, BIN)
    for key in ("ReturnToService", "JobRequeue", "SlurmctldParameters", "GresTypes"):
        assert key not in text
    assert f"TaskProlog={BIN}/hyperpod-task-prolog" in text


def test_the_include_line_is_added_once_and_before_the_nodes() -> None:
    once = slurm_conf.with_include(SLURM_CONF)
    assert slurm_conf.with_include(once) == once
    assert once.count("include hyperpod.conf") == 1
    assert once.index("include hyperpod.conf") < once.index("NodeName=")
    assert slurm_conf.with_include("ClusterName=a\n") == "ClusterName=a\ninclude hyperpod.conf\n"


def test_nodes_without_gres_get_the_workers_by_default() -> None:
    text = slurm_conf.render(slurm_conf.parse(SLURM_CONF), P5, BIN)
    assert "NodeName=DEFAULT Gres=gpu:8\n" in text
    assert "GresTypes=gpu\n" in text


def test_nodes_that_have_gres_are_left_alone() -> None:
    conf = slurm_conf.parse(SLURM_CONF.replace("CPUs=8", "CPUs=8 Gres=gpu:8"))
    assert "NodeName" not in slurm_conf.render(conf, P5, BIN)


def test_groups_that_differ_get_gres_by_node() -> None:
    text = "NodeName=ip-10-1-0-[2-3] NodeAddr=10.1.0.[2-3] CPUs=8\nNodeName=ip-10-1-0-4 CPUs=8\n"
    both = groups(big="ml.p5.48xlarge", small="ml.g5.16xlarge")
    instances = [Instance("big", "big-1", "10.1.0.2", "i-1"), Instance("big", "big-2", "10.1.0.3", "i-2")]
    by_node = slurm_conf.groups_of_nodes(slurm_conf.parse(text), instances, {"ip-10-1-0-4": "small"}, both)
    once = slurm_conf.with_gres(text, by_node)
    assert once.splitlines() == [
        "NodeName=ip-10-1-0-[2-3] NodeAddr=10.1.0.[2-3] CPUs=8 Gres=gpu:8",
        "NodeName=ip-10-1-0-4 CPUs=8 Gres=gpu:1",
    ]
    assert slurm_conf.with_gres(once, by_node) == once
    assert slurm_conf.render_gres(by_node).splitlines()[1:] == [
        "AutoDetect=off",
        "NodeName=ip-10-1-0-4 Name=gpu File=/dev/nvidia0",
        "NodeName=ip-10-1-0-2,ip-10-1-0-3 Name=gpu File=/dev/nvidia[0-7]",
    ]


def test_our_partition_is_added_where_the_agent_has_none_of_that_name() -> None:
    assert "PartitionName=gpu Nodes=ALL Default=NO" in slurm_conf.render(slurm_conf.parse(SLURM_CONF), P5, BIN)
    agents = slurm_conf.parse(SLURM_CONF.replace("PartitionName=dev", "PartitionName=gpu"))
    assert "PartitionName" not in slurm_conf.render(agents, P5, BIN)
    none = slurm_conf.parse("ClusterName=a\n")
    assert "PartitionName=gpu Nodes=ALL Default=YES" in slurm_conf.render(none, P5, BIN)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]-x,m", ["n08-x", "n09-x", "n10-x", "m"]),
    ],
)
def test_host_lists_are_expanded_as_slurm_does(names: str, wanted: list[str]) -> None:
    assert slurm_conf.expand(names) == wanted


def test_continued_and_commented_lines_are_read_as_slurm_reads_them() -> None:
    conf = slurm_conf.parse("NodeName=a \\\n CPUs=2 # NodeName=b\n#PartitionName=x\nslurmctldport=7000-7002\n")
    assert [node["nodename"] for node in conf.nodes] == ["a"]
    assert conf.port == 7000
    assert not conf.partitions


def test_a_gres_conf_of_somebody_else_is_left_alone(world: World) -> None:
    host = world.node("controller")
    host.path("/opt/slurm/etc/gres.conf").write_text("AutoDetect=nvml\n")
    slurm_configure.configure(host, host.node().parameters.groups, [], "/fsx/.hyperpod")
    assert host.text("/opt/slurm/etc/gres.conf") == "AutoDetect=nvml\n"


def test_the_agents_rewriting_of_slurm_conf_is_repaired(world: World) -> None:
    host = world.node("controller")
    found = host.node().parameters.groups
    assert slurm_configure.configure(host, found, [], "/fsx/.hyperpod")
    assert not slurm_configure.configure(host, found, [], "/fsx/.hyperpod")
    host.path("/opt/slurm/etc/slurm.conf").write_text(SLURM_CONF.replace("12-13", "12,14"))
    assert slurm_configure.configure(host, found, [], "/fsx/.hyperpod")
    assert "include hyperpod.conf\nNodeName=ip-10-1-0-[12,14]" in host.text("/opt/slurm/etc/slurm.conf")


def controller(world: World, text: str, **files: str) -> FakeHost:
    """The controller with this in front of its slurm.conf, and files beside it."""
    host = world.node("controller")
    etc = host.path("/opt/slurm/etc")
    (etc / "slurm.conf").write_text(text + SLURM_CONF)
    for name, content in files.items():
        (etc / name.replace("_", ".")).write_text(content)
    return host


def configure(host: FakeHost) -> bool:
    return slurm_configure.configure(host, host.node().parameters.groups, [], "/fsx/.hyperpod")


def test_what_an_included_file_sets_is_not_set_again(world: World) -> None:
    host = controller(world, "Include accounting.conf\n", accounting_conf="GresTypes=gpu\nReturnToService=1\n")
    assert configure(host)
    ours = host.text("/opt/slurm/etc/hyperpod.conf")
    assert "GresTypes" not in ours
    assert "ReturnToService" not in ours
    assert "JobRequeue=1" in ours


def test_login_nodes_get_one_file_with_all_that_is_included_and_no_password(world: World) -> None:
    text = "AccountingStorageHost=db\nAccountingStoragePass=secret\n"
    host = controller(world, "Include accounting.conf\nInclude nowhere.conf\n", accounting_conf=text)
    configure(host)
    slurm_configure.publish(host, "/fsx/.hyperpod")
    published = host.text("/fsx/.hyperpod/slurm/slurm.conf")
    assert "AccountingStorageHost=db" in published
    assert "TaskProlog=" in published
    assert "Include nowhere.conf" in published
    assert "secret" not in published


TREE = "TopologyPlugin=topology/tree\n"
SWITCHES = "SwitchName=nn-1 Nodes=ip-10-1-0-12,ip-10-1-0-13\n"


@pytest.mark.parametrize("empty", [{}, {"topology_conf": ""}, {"topology_conf": "# nothing yet\n"}])
def test_slurm_plans_by_a_tree_only_once_there_is_one(world: World, empty: dict[str, str]) -> None:
    host = controller(world, TREE, **empty)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    assert configure(host)
    assert not slurm_conf.parse(conf.read_text()).get("TopologyPlugin")
    assert not configure(host)
    host.path("/opt/slurm/etc/topology.conf").write_text(SWITCHES)
    assert configure(host)
    assert slurm_conf.parse(conf.read_text()).get("TopologyPlugin") == "topology/tree"
    assert host.text("/opt/slurm/etc/topology.conf") == SWITCHES
    assert not configure(host)


def test_a_topology_that_needs_no_map_stays(world: World) -> None:
    host = controller(world, "TopologyPlugin=topology/flat\n")
    configure(host)
    assert "\nTopologyPlugin=topology/flat" in "\n" + host.text("/opt/slurm/etc/slurm.conf")


def test_an_empty_map_and_the_partitions_that_name_it_are_removed(world: World) -> None:
    """Slurm 25.11 crashes on them."""
    host = controller(world, "", topology_conf="", topology_yaml="[]\n")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "PartitionName=gpu Nodes=ALL Topology=tree State=UP\n")
    assert configure(host)
    assert not host.path("/opt/slurm/etc/topology.yaml").exists()
    assert not host.path("/opt/slurm/etc/topology.conf").exists()
    assert "\nPartitionName=gpu Nodes=ALL State=UP\n" in conf.read_text()
    assert not configure(host)
    host.path("/opt/slurm/etc/topology.conf").write_text(SWITCHES)
    assert configure(host)
    assert "\nPartitionName=gpu Nodes=ALL Topology=tree State=UP\n" in conf.read_text()
    assert "#with-a-map#" not in conf.read_text()
    assert not configure(host)


@pytest.mark.parametrize("empty", ["", "[]\n", "---\n[]\n", "{}\n", "- topology: tree\n  tree:\n    switches: []\n"])
def test_an_empty_tree_hides_no_other_map(world: World, empty: str) -> None:
    host = controller(world, TREE, topology_conf=SWITCHES, topology_yaml=empty)
    assert configure(host)
    assert not host.path("/opt/slurm/etc/topology.yaml").exists()
    assert host.text("/opt/slurm/etc/topology.conf") == SWITCHES
    assert slurm_conf.parse(host.text("/opt/slurm/etc/slurm.conf")).get("TopologyPlugin") == "topology/tree"


MAP = "- topology: tree\n  tree:\n    switches:\n      - switch: nn-1\n        nodes: ip-10-1-0-[12-13]\n"


def test_a_map_that_says_something_is_left_alone(world: World) -> None:
    host = controller(world, "", topology_yaml=MAP, topology_conf="")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "PartitionName=gpu Nodes=ALL Topology=tree State=UP\n")
    configure(host)
    assert "Topology=tree" in conf.read_text()
    assert host.text("/opt/slurm/etc/topology.yaml") == MAP


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
    slurm.run(node)
    assert "slurmctld" in host.active
    assert "ClusterName=mine" in conf.read_text()


def test_the_controller_answers_before_the_step_ends(world: World) -> None:
    host = world.node("controller")
    slurm.run(ready(host))
    assert {"slurmctld", "hyperpod-requeue"} <= host.active
    assert "ConditionPathExists=/etc/hyperpod/runs-slurmd" in host.text(
        "/etc/systemd/system/slurmd.service.d/10-hyperpod.conf"
    )
    assert "TaskProlog=/opt/hyperpod/bin" in (world.shared / ".hyperpod/slurm/slurm.conf").read_text()


def test_a_controller_that_runs_already_is_restarted_only_for_a_new_configuration(world: World) -> None:
    host = world.node("controller")
    host.active.add("slurmctld")
    slurm.run(ready(host))
    assert host.ran("systemctl", "restart", "slurmctld")
    assert host.ran("scontrol", "reconfigure")
    again = world.node("controller")
    slurm.run(ready(again))
    assert not again.ran("systemctl", "restart", "slurmctld")
    assert not again.ran("scontrol", "reconfigure")


def test_a_slurm_conf_that_the_agent_never_wrote_ends_the_wait(world: World) -> None:
    host = world.node("controller")
    host.path("/opt/slurm/etc/slurm.conf").unlink()
    with pytest.raises(StepError, match=r"HyperPod's agent did not write /opt/slurm/etc/slurm.conf within 300 s"):
        slurm.run(ready(host))


def test_slurmctld_that_does_not_answer_fails(world: World) -> None:
    host = world.node("controller")
    host.fail["scontrol"] = Result(1, "Slurmctld(primary) at ip-10-1-0-10 is DOWN\n")
    with pytest.raises(StepError, match=r"did not answer `scontrol ping` within 300 s: .*is DOWN"):
        slurm.run(ready(host))


def test_a_second_controller_that_slurm_conf_does_not_name_is_refused(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ip-10-1-0-10(10.1.0.10)", "ip-10-1-0-99(10.1.0.99)"))
    with pytest.raises(StepError, match=r"slurm.conf names 10.1.0.99, ip-10-1-0-99: two controllers claim the cluster"):
        slurm.run(ready(host))


@pytest.mark.parametrize(("addresses", "warned"), [(["10.1.0.10"], False), ([], True)])
def test_a_controller_that_slurm_conf_calls_by_another_name_is_still_it(
    world: World, addresses: list[str], warned: bool
) -> None:
    world.names["head"] = addresses
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("ip-10-1-0-10(10.1.0.10)", "head"))
    node = ready(host)
    slurm.run(node)
    assert bool(node.warnings) == warned


def two_controllers(host: FakeHost) -> None:
    path = host.path(host.settings.resource_config)
    document = json.loads(path.read_text())
    document["InstanceGroups"][0]["Instances"].append(
        {"InstanceName": "controller-2", "CustomerIpAddress": "10.1.0.20", "InstanceId": "i-2"}
    )
    path.write_text(json.dumps(document))


def test_two_controllers_that_each_name_only_themselves_are_refused(world: World) -> None:
    host = world.node("controller")
    two_controllers(host)
    node = ready(host)
    claim = world.shared / ".hyperpod/slurm/controller.json"
    claim.write_text('{"instance_id": "i-2", "hostname": "ip-10-1-0-20", "address": "10.1.0.20"}')
    with pytest.raises(StepError, match=r"two controllers claim the cluster: this one .* and i-2 \(ip-10-1-0-20\)"):
        slurm.run(node)


def test_two_controllers_that_slurm_conf_names_both_are_fine(world: World) -> None:
    host = world.node("controller")
    two_controllers(host)
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text().replace("NodeName", "SlurmctldHost=ip-10-1-0-20(10.1.0.20)\nNodeName", 1))
    node = ready(host)
    (world.shared / ".hyperpod/slurm/controller.json").write_text(
        '{"instance_id": "i-2", "hostname": "ip-10-1-0-20", "address": "10.1.0.20"}'
    )
    slurm.run(node)


def test_the_claim_of_a_replaced_controller_is_taken_over(world: World) -> None:
    host = world.node("controller")
    node = ready(host)
    claim = world.shared / ".hyperpod/slurm/controller.json"
    claim.write_text('{"instance_id": "i-gone", "hostname": "ip-10-1-0-77", "address": "10.1.0.77"}')
    slurm.run(node)
    assert json.loads(claim.read_text())["hostname"] == "ip-10-1-0-10"


def test_a_task_prolog_of_somebody_else_is_said(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text("TaskProlog=/opt/other\n" + conf.read_text())
    node = ready(host)
    slurm.run(node)
    assert "has a TaskProlog of its own (/opt/other)" in node.warnings["slurm"][0]
    assert "TaskProlog" not in host.text("/opt/slurm/etc/hyperpod.conf")


# A worker


def test_a_worker_fetches_its_configuration_from_all_controllers(world: World) -> None:
    host = world.node("worker")
    two_controllers(host)
    slurm.run(ready(host))
    drop_in = host.text("/etc/systemd/system/slurmd.service.d/10-hyperpod.conf")
    assert "ExecStart=\nExecStart=/usr/sbin/slurmd --conf-server 10.1.0.10,10.1.0.20 -D -s $OPTIONS\n" in drop_in
    assert "LimitMEMLOCK=infinity" in drop_in
    assert host.active == {"slurmd"}


@pytest.mark.parametrize(
    "command",
    [
        "/opt/slurm/sbin/slurmd -D $SLURMD_OPTIONS",
        "/opt/slurm/sbin/slurmd --conf-server=old:6817 -D $SLURMD_OPTIONS",
        "/opt/slurm/sbin/slurmd --conf-server old -D $SLURMD_OPTIONS",
    ],
)
def test_conf_server_is_there_once_and_the_rest_stays(command: str) -> None:
    assert slurm.with_servers(command, ["a", "b"]) == "/opt/slurm/sbin/slurmd --conf-server a,b -D $SLURMD_OPTIONS"


def test_slurmd_is_not_started_before_a_controller_answers(world: World) -> None:
    host = world.node("worker")
    world.controller_up = False

    def later() -> None:
        assert "slurmd" not in host.active or world.controller_up
        world.controller_up = host.clock > 1400

    host.on_sleep = later
    slurm.run(ready(host))
    assert "slurmd" in host.active


def test_a_controller_that_never_answers_ends_the_wait(world: World) -> None:
    world.controller_up = False
    with pytest.raises(StepError, match=r"no controller answered at 10.1.0.10:6817 within 900 s"):
        slurm.run(ready(world.node("worker")))


def shows(host: FakeHost, state: str) -> None:
    host.commands["scontrol"] = lambda h, args, stdin: Result(0, f"NodeName=x State={state} CPUs=8\n")


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED+CLOUD", "IDLE+PLANNED"])
def test_a_node_that_takes_jobs_is_success(world: World, state: str) -> None:
    host = world.node("worker")
    shows(host, state)
    slurm.run(ready(host))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("IDLE*", r"did not show this node as idle within 300 s: IDLE\*"),
        ("IDLE+DRAIN Reason=hand [root@2026]", "keeps this node down: hand"),
        (
            "DOWN+INVALID_REG Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026]",
            r"keeps this node down: gres/gpu count reported lower than configured \(0 < 8\)",
        ),
        ("DOWN Reason=Action:Replace [root@2026]", "keeps this node down: Action:Replace"),
    ],
)
def test_a_node_that_takes_no_jobs_is_not_success_and_says_why(world: World, state: str, said: str) -> None:
    host = world.node("worker")
    shows(host, state)
    with pytest.raises(StepError, match=said):
        slurm.run(ready(host))


def test_a_reason_that_this_boot_settled_is_taken_away(world: World) -> None:
    host = world.node("worker")
    state = ["DOWN Reason=Node unexpectedly rebooted [slurm@2026]"]

    def scontrol(h: FakeHost, args: object, stdin: object) -> Result:
        if args[1] == "update":  # type: ignore[index]
            state[0] = "IDLE"
        return Result(0, f"NodeName=x State={state[0]}\n")

    host.commands["scontrol"] = scontrol
    slurm.run(ready(host))
    assert host.ran("scontrol", "update", "NodeName=ip-10-1-0-12", "State=RESUME")


def test_a_node_that_the_controller_does_not_know_says_so(world: World) -> None:
    host = world.node("worker")
    host.commands["scontrol"] = lambda h, args, stdin: Result(1, "", "Node ip-10-1-0-12 not found")
    with pytest.raises(StepError, match=r"Node ip-10-1-0-12 not found"):
        slurm.run(ready(host))


# A login node


def test_a_login_node_does_not_take_the_images_configuration_for_its_own(world: World) -> None:
    slurm.run(ready(world.node("controller")))
    host = world.node("login")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("ClusterName=template\nSlurmctldHost=localhost\n")
    assert slurm.run(ready(host)).endswith("by the controller's configuration")
    assert str(conf.readlink()) == "/fsx/.hyperpod/slurm/slurm.conf"


def test_a_login_node_waits_for_a_configuration_that_names_a_controller(world: World) -> None:
    host = world.node("login")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("ClusterName=template\n")
    with pytest.raises(StepError, match=r"neither /opt/slurm/etc/slurm.conf named a controller nor its copy .* 900 s"):
        slurm.run(ready(host))


@pytest.mark.parametrize("name", ["ip-10-1-0-10", "ip-10-1-0-10.ec2.internal", "head", "10.1.0.10"])
def test_a_login_node_knows_its_controller_by_any_of_its_names(world: World, name: str) -> None:
    world.names["head"] = ["10.1.0.10"]
    host = world.node("login")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"ClusterName=mine\nSlurmctldHost={name}\n")
    assert slurm.run(ready(host)).endswith("by its own configuration")


def test_a_login_node_without_a_configuration_uses_the_controllers(world: World) -> None:
    slurm.run(ready(world.node("controller")))
    host = world.node("login")
    assert slurm.run(ready(host)).endswith("by the controller's configuration")
    link = host.path("/opt/slurm/etc/slurm.conf")
    assert str(link.readlink()) == "/fsx/.hyperpod/slurm/slurm.conf"
    assert "JobRequeue=1" in (world.shared / ".hyperpod/slurm/slurm.conf").read_text()
    assert not host.active


def test_a_login_node_with_the_agents_configuration_keeps_it(world: World) -> None:
    host = world.node("login")
    host.path("/opt/slurm/etc").mkdir(parents=True)
    host.path("/opt/slurm/etc/slurm.conf").write_text(SLURM_CONF)
    assert slurm.run(ready(host)).endswith("by its own configuration")

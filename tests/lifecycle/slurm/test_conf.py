"""Slurm's configuration, the agent's and ours."""

from dataclasses import replace

import pytest
from hyperpod_node.facts.model import Group, Instance
from hyperpod_node.slurm import conf as slurm_conf
from hyperpod_node.slurm import configure as slurm_configure
from hyperpod_node.slurm import gres

from tests.lifecycle.rig import SLURM_CONF, FakeHost, World, group

BIN = "/opt/hyperpod/bin"


def groups(**types: str) -> dict[str, Group]:
    return {name: replace(group(name, kind), partition="gpu") for name, kind in types.items()}


P5 = groups(workers="ml.p5.48xlarge")
ALL = {"ip-10-1-0-2": P5["workers"]}


# The files


def test_the_include_line_is_added_once_and_before_the_nodes() -> None:
    once = slurm_conf.with_include(SLURM_CONF)
    assert slurm_conf.with_include(once) == once
    assert once.count("include hyperpod.conf") == 1
    assert once.index("include hyperpod.conf") < once.index("NodeName=")
    assert slurm_conf.with_include("ClusterName=a\n") == "ClusterName=a\ninclude hyperpod.conf\n"


@pytest.mark.parametrize(
    ("types", "default"),
    [
        (("ml.m5.large", "ml.p5.48xlarge"), "gpu:h100:8"),
        (("ml.g5.16xlarge", "ml.p5.48xlarge", "ml.m5.large"), "gpu:h100:8"),
        (("ml.g5.48xlarge", "ml.p5.48xlarge"), "gpu:8"),
        (("ml.m5.large",), ""),
    ],
)
def test_groups_that_differ_have_the_largest_nodes_gres_for_lines_that_the_agent_writes_without(
    types: tuple[str, ...], default: str
) -> None:
    models = {"ml.p5.48xlarge": "gpu:h100", "ml.g5.48xlarge": "gpu:a10g", "ml.g5.16xlarge": "gpu:a10g"}
    found = {kind: replace(group("a", kind), role="worker", gres=models.get(kind, "")) for kind in types}
    line = f"NodeName=DEFAULT Gres={default}\n" if default else ""
    # Also once our own lines have it: a line that joins later may not.
    for conf in (SLURM_CONF, SLURM_CONF.replace("CPUs=8", "CPUs=8 Gres=gpu:8")):
        assert gres.default(slurm_conf.parse(conf), found) == line


def test_groups_that_differ_get_gres_by_node() -> None:
    text = "NodeName=ip-10-1-0-[2-3] NodeAddr=10.1.0.[2-3] CPUs=8\nNodeName=ip-10-1-0-4 CPUs=8\n"
    both = groups(big="ml.p5.48xlarge", small="ml.g5.16xlarge")
    instances = [Instance("big", "big-1", "10.1.0.2", "i-1"), Instance("big", "big-2", "10.1.0.3", "i-2")]
    by_node = slurm_conf.groups_of_nodes(slurm_conf.parse(text), instances, {"ip-10-1-0-4": "small"}, both)
    once = gres.with_gres(text, by_node, both)
    assert once.splitlines() == [
        "NodeName=ip-10-1-0-[2-3] NodeAddr=10.1.0.[2-3] CPUs=8 Gres=gpu:8",
        "NodeName=ip-10-1-0-4 CPUs=8 Gres=gpu:1",
    ]
    assert gres.with_gres(once, by_node, both) == once
    assert gres.render(by_node).splitlines()[1:] == [
        "AutoDetect=off",
        "NodeName=ip-10-1-0-4 Name=gpu File=/dev/nvidia0",
        "NodeName=ip-10-1-0-2,ip-10-1-0-3 Name=gpu File=/dev/nvidia[0-7]",
    ]


def test_a_node_belongs_to_the_group_of_its_address_of_its_name_or_of_its_own_note() -> None:
    both = groups(big="ml.p5.48xlarge", small="ml.g5.16xlarge")
    instances = [Instance("big", "big-1", "10.1.0.2", "i-1"), Instance("small", "small-1", "10.1.0.3", "i-2")]
    conf = slurm_conf.parse("NodeName=a NodeAddr=10.1.0.2\nNodeName=ip-10-1-0-3\nNodeName=ip-10-1-0-4\n")
    found = slurm_conf.groups_of_nodes(conf, instances, {"ip-10-1-0-4": "small", "ip-10-1-0-3": "big"}, both)
    assert {name: one.name for name, one in found.items()} == {
        "a": "big",
        "ip-10-1-0-3": "small",
        "ip-10-1-0-4": "small",
    }


def test_jobs_may_ask_for_a_model_unless_hyperpods_own_lines_name_none() -> None:
    typed = {name: replace(group, gres="gpu:h100") for name, group in P5.items() if group.role == "worker"}
    (workers,) = typed.values()
    text = slurm_conf.render(slurm_conf.parse(SLURM_CONF), typed, {}, BIN)
    assert gres.default(slurm_conf.parse(SLURM_CONF), typed) == "NodeName=DEFAULT Gres=gpu:h100:8\n"
    assert "GresTypes=gpu\n" in text
    assert gres.render({"*": workers}).splitlines()[-1] == "Name=gpu Type=h100 File=/dev/nvidia[0-7]"
    assert gres.untyped(slurm_conf.parse(SLURM_CONF), typed) == []
    agents = slurm_conf.parse(SLURM_CONF.replace("CPUs=8", "CPUs=8 Gres=gpu:8"))
    (warning,) = gres.untyped(agents, typed)
    assert "gives nodes Gres=gpu:8, so Slurm refuses --gres=gpu:h100:8" in warning
    assert gres.untyped(agents, P5) == []


def test_a_partition_without_nodes_is_left_to_the_agent_which_may_write_it_yet() -> None:
    assert "PartitionName" not in slurm_conf.render(slurm_conf.parse(SLURM_CONF), P5, {}, BIN)


def test_our_partition_is_added_where_the_agent_has_none_of_that_name() -> None:
    assert "PartitionName=gpu Nodes=ALL Default=NO" in slurm_conf.render(slurm_conf.parse(SLURM_CONF), P5, ALL, BIN)
    agents = slurm_conf.parse(SLURM_CONF.replace("PartitionName=dev", "PartitionName=gpu"))
    assert "PartitionName" not in slurm_conf.render(agents, P5, ALL, BIN)
    none = slurm_conf.parse("ClusterName=a\n")
    assert "PartitionName=gpu Nodes=ALL Default=YES" in slurm_conf.render(none, P5, ALL, BIN)


def test_continued_and_commented_lines_are_read_as_slurm_reads_them() -> None:
    conf = slurm_conf.parse("NodeName=a \\\n CPUs=2 # NodeName=b\n#PartitionName=x\nslurmctldport=7000-7002\n")
    assert [node["nodename"] for node in conf.nodes] == ["a"]
    assert conf.port("SlurmctldPort", 6817) == 7000
    assert not conf.partitions


def test_a_gres_conf_of_somebody_else_is_left_alone(world: World) -> None:
    host = world.node("controller")
    host.path("/opt/slurm/etc/gres.conf").write_text("AutoDetect=nvml\n")
    slurm_configure.configure(host, host.remember(), [])
    assert host.text("/opt/slurm/etc/gres.conf") == "AutoDetect=nvml\n"


def test_the_agents_rewriting_of_slurm_conf_is_repaired(world: World) -> None:
    host = world.node("controller")
    found = host.remember()
    assert slurm_configure.configure(host, found, [])
    assert not slurm_configure.configure(host, found, [])
    host.path("/opt/slurm/etc/slurm.conf").write_text(SLURM_CONF.replace("12-13", "12,14"))
    assert slurm_configure.configure(host, found, [])
    assert "include hyperpod.conf\nNodeName=ip-10-1-0-[12,14]" in host.text("/opt/slurm/etc/slurm.conf")


@pytest.mark.parametrize("there", [None, "", "# made by HyperPod\n\n"])
def test_a_type_that_hyperpods_own_lines_name_is_in_gres_conf_too(world: World, there: str | None) -> None:
    # Slurm takes no file for a type that gres.conf does not name (its interfaces/gres.c, _merge_gres2), and without a
    # file jobs have no CUDA_VISIBLE_DEVICES. HyperPod's nodes may have Gres=gpu:h100:8 (awsome-distributed-ai,
    # hyperpod-mental-model.md), and gres.conf may say nothing there.
    host = controller(world, "", **({} if there is None else {"gres_conf": there}))
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(SLURM_CONF.replace("CPUs=8", "CPUs=8 Gres=gpu:h100:8"))
    assert configure(host)
    lines = host.text("/opt/slurm/etc/gres.conf").splitlines()[1:]
    assert lines == ["AutoDetect=off", "Name=gpu Type=h100 File=/dev/nvidia[0-7]"]
    # A number is no type.
    conf.write_text(SLURM_CONF.replace("CPUs=8", "CPUs=8 Gres=gpu:8"))
    assert configure(host)
    assert "Name=gpu File=" in host.text("/opt/slurm/etc/gres.conf")


def controller(world: World, text: str, **files: str) -> FakeHost:
    """The controller with this in front of its slurm.conf, and files beside it."""
    host = world.node("controller")
    etc = host.path("/opt/slurm/etc")
    (etc / "slurm.conf").write_text(text + SLURM_CONF)
    for name, content in files.items():
        (etc / name.replace("_", ".")).write_text(content)
    return host


def configure(host: FakeHost) -> bool:
    return slurm_configure.configure(host, host.remember(), [])


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
    slurm_configure.publish(host, host.remember())
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
    # For when the agent writes the plugin again: without the file Slurm is deaf for a minute, and ends.
    assert slurm_conf.parse(host.text("/opt/slurm/etc/topology.conf")) == slurm_conf.parse("")
    assert not configure(host)
    host.path("/opt/slurm/etc/topology.conf").write_text(SWITCHES)
    assert configure(host)
    assert slurm_conf.parse(conf.read_text()).get("TopologyPlugin") == "topology/tree"
    assert host.text("/opt/slurm/etc/topology.conf") == SWITCHES
    assert not configure(host)


@pytest.mark.parametrize(
    ("map_", "plans"),
    [
        ("SwitchName=nn-1 Nodes=ip-10-1-0-12\nSwitchName=nn-2 Switches=nn-1\n", False),
        ("SwitchName=nn-1 Nodes=ip-10-1-0-12\nswitchname=nn-3 LinkSpeed=1 nodes=ip-10-1-0-13\n", True),
        ("SwitchName=nn-1 Nodes=ip-10-1-0-[10-13]\n", True),
        ("SwitchName=nn-1 Nodes=ALL\n", True),
        # Not understood by us, and no reason to distrust it.
        ("SwitchName=nn-1 Nodes=ip-10-[1-2]-0-[10-13]\n", True),
        ("BlockName=b1 Nodes=ip-10-1-0-12\nBlockSizes=1\n", True),
    ],
)
def test_slurm_plans_by_a_tree_only_while_every_worker_is_on_it(world: World, map_: str, plans: bool) -> None:
    host = controller(world, TREE, topology_conf=map_)
    configure(host)
    assert bool(slurm_conf.parse(host.text("/opt/slurm/etc/slurm.conf")).get("TopologyPlugin")) is plans
    assert host.text("/opt/slurm/etc/topology.conf") == map_
    host.path("/opt/slurm/etc/topology.conf").write_text(SWITCHES)
    configure(host)
    assert slurm_conf.parse(host.text("/opt/slurm/etc/slurm.conf")).get("TopologyPlugin") == "topology/tree"


def test_a_topology_that_needs_no_map_stays(world: World) -> None:
    host = controller(world, "TopologyPlugin=topology/flat\n")
    configure(host)
    assert "\nTopologyPlugin=topology/flat" in "\n" + host.text("/opt/slurm/etc/slurm.conf")


def test_an_empty_tree_and_the_partitions_that_name_it_are_removed(world: World) -> None:
    """Slurm 25.11 crashes on them."""
    host = controller(world, "", topology_conf="", topology_yaml="[]\n")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + "PartitionName=gpu Nodes=ALL Topology=tree State=UP\n")
    assert configure(host)
    assert not host.path("/opt/slurm/etc/topology.yaml").exists()
    assert host.text("/opt/slurm/etc/topology.conf") == ""
    waits = "#with-a-map# PartitionName=gpu Nodes=ALL Topology=tree State=UP\nPartitionName=gpu Nodes=ALL State=UP\n"
    assert f"\n{waits}" in conf.read_text()
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


def test_our_line_is_in_the_file_that_the_agent_does_not_rewrite(world: World) -> None:
    host = controller(world, "Include accounting.conf\n", accounting_conf="AccountingStorageTRES=gres/gpu\n")
    agents = host.text("/opt/slurm/etc/slurm.conf")
    assert configure(host)
    assert host.text("/opt/slurm/etc/accounting.conf") == "AccountingStorageTRES=gres/gpu\ninclude hyperpod.conf\n"
    assert host.text("/opt/slurm/etc/slurm.conf") == agents
    # Written anew under running jobs, it is read with our GresTypes at once, and nothing is left to settle.
    host.path("/opt/slurm/etc/slurm.conf").write_text(agents.replace("12-13", "12-15"))
    assert not configure(host)
    slurm_configure.publish(host, host.remember())
    assert "GresTypes=gpu" in host.text("/fsx/.hyperpod/slurm/slurm.conf")


@pytest.mark.parametrize("text", ["", "Include accounting.conf\nInclude hyperpod.conf\n"])
def test_our_line_is_never_read_twice(world: World, text: str) -> None:
    host = controller(world, text)
    configure(host)
    both = host.text("/opt/slurm/etc/slurm.conf") + (host.read("/opt/slurm/etc/accounting.conf") or "")
    assert both.lower().count("include hyperpod.conf") == 1


def test_a_file_that_is_included_after_the_nodes_carries_nothing() -> None:
    assert slurm_conf.carrier(SLURM_CONF + "Include accounting.conf\n") is None


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=ip-10-1-0-11 NodeHostname=ip-10-1-0-11 NodeAddr=10.1.0.11 CPUs=2 State=CLOUD",
        "NodeName=login-1 NodeAddr=10.1.0.11 CPUs=2 State=UNKNOWN # by name",
        "NodeName=ip-10-1-0-11 CPUs=2",
    ],
)
def test_login_nodes_are_in_no_partition(world: World, line: str) -> None:
    host = controller(world, "")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(conf.read_text() + line + "\n")
    node = host.node()
    assert slurm_configure.configure(host, host.remember(), node.identity.instances)
    changed = conf.read_text().splitlines()[-1]
    assert changed.startswith(line.split(" ")[0])
    assert changed.endswith(" State=FUTURE")
    assert changed.count("State=") == 1
    assert "NodeName=ip-10-1-0-[12-13] NodeAddr=10.1.0.[12-13] CPUs=8 State=UNKNOWN" in conf.read_text()
    assert not slurm_configure.configure(host, host.remember(), node.identity.instances)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_controllers_own_database_is_not_the_login_nodes(world: World, name: str) -> None:
    host = controller(world, f"AccountingStorageHost={name}\n")
    slurm_configure.publish(host, host.remember())
    assert "AccountingStorageHost=10.1.0.10\n" in host.text("/fsx/.hyperpod/slurm/slurm.conf")


def test_a_controller_alone_has_a_configuration_that_is_right_for_the_first_worker(world: World) -> None:
    host = controller(world, "")
    alone = "ClusterName=mine\nSlurmctldHost=ip-10-1-0-10(10.1.0.10)\n"
    host.path("/opt/slurm/etc/slurm.conf").write_text(alone)
    assert configure(host)
    ours = host.text("/opt/slurm/etc/hyperpod.conf")
    assert "\nNodeName=DEFAULT Gres=gpu:8\n" in ours
    assert "\nPartitionName=gpu Nodes=ALL Default=YES" in ours
    assert "Name=gpu File=/dev/nvidia[0-7]" in host.text("/opt/slurm/etc/gres.conf")
    assert not configure(host)

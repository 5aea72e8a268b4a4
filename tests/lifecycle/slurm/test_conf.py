"""Slurm's configuration, the agent's and ours."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperpod_node.facts.model import Group, Instance
from hyperpod_node.slurm import conf as slurm_conf
from hyperpod_node.slurm import configure as slurm_configure
from hyperpod_node.slurm import gres
from hyperpod_node.slurm.conf import SlurmConf

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


G5 = {"small": replace(group("small", "ml.g5.16xlarge"), partition="gpu")}
TYPED = {"workers": replace(P5["workers"], gres="gpu:h100")}


def hooks(conf: SlurmConf) -> list[str]:
    return slurm_conf.missing_keys(conf, BIN)


def typed(conf: SlurmConf) -> list[str]:
    return gres.untyped(conf, TYPED)


NO_CGROUP = "a session by ssh needs a job, and outlives it"
OWN_CHECKS = "slurm.conf has a HealthCheckProgram of its own (/x): this project's checks do not run"


@pytest.mark.parametrize(
    ("look", "text", "told"),
    [
        (hooks, "", []),
        (hooks, f"TaskProlog={BIN}/hyperpod-task-prolog\nHealthCheckProgram={BIN}/hyperpod-health-check\n", []),
        (
            hooks,
            "TaskProlog=/x\n",
            ["slurm.conf has a TaskProlog of its own (/x): jobs do not get this node's transport variables"],
        ),
        (
            hooks,
            "SlurmctldParameters=idle_on_node_suspend\n",
            ["slurm.conf sets SlurmctldParameters without enable_configless: workers cannot fetch it"],
        ),
        (hooks, "SlurmctldParameters=idle_on_node_suspend,enable_configless\n", []),
        (hooks, "SlurmdTimeout=60\n", []),
        (hooks, "SlurmdTimeout=x\n", []),
        (
            hooks,
            "SlurmdTimeout=61\n",
            ["slurm.conf sets SlurmdTimeout=61: a job with auto-resume is requeued only after that many seconds"],
        ),
        (hooks, "HealthCheckProgram=/x\n", [OWN_CHECKS]),
        (hooks, "JobRequeue=1\n", []),
        (
            hooks,
            "JobRequeue=0\n",
            ["slurm.conf sets JobRequeue=0: a job whose node is lost is not put back into the queue"],
        ),
        (hooks, "SchedulerParameters=bf_window=60,nohold_on_prolog_fail\n", []),
        (
            hooks,
            "SchedulerParameters=bf_window=60\n",
            ["slurm.conf sets SchedulerParameters without nohold_on_prolog_fail: a job that meets a bad node is held"],
        ),
        (typed, "NodeName=a Gres=gpu:h100:8\nNodeName=b\n", []),
        (
            typed,
            "NodeName=a Gres=gpu:8\n",
            ["slurm.conf gives nodes Gres=gpu:8, so Slurm refuses --gres=gpu:h100:8; without the type it works"],
        ),
        (
            typed,
            "NodeName=a Gres=gpu\n",
            ["slurm.conf gives nodes Gres=gpu, so Slurm refuses --gres=gpu:h100:8; without the type it works"],
        ),
        (slurm_conf.not_contained, "TaskPlugin=task/affinity,task/cgroup\n", []),
        (slurm_conf.not_contained, "TaskPlugin=task/cgroup\nProctrackType=proctrack/cgroup\nPrologFlags=contain\n", []),
        (
            slurm_conf.not_contained,
            "TaskPlugin=task/cgroup\nPrologFlags=Alloc\n",
            ["slurm.conf sets PrologFlags=Alloc, without Contain: ssh to workers needs no job"],
        ),
        (slurm_conf.not_contained, "", [f"slurm.conf has TaskPlugin=, not task/cgroup: {NO_CGROUP}"]),
        (
            slurm_conf.not_contained,
            "TaskPlugin=task/cgroup\nProctrackType=proctrack/linuxproc\n",
            [f"slurm.conf has ProctrackType=proctrack/linuxproc, not proctrack/cgroup: {NO_CGROUP}"],
        ),
    ],
)
def test_settings_that_work_against_us_are_told_with_what_follows(
    look: Callable[[SlurmConf], list[str]], text: str, told: list[str]
) -> None:
    assert look(slurm_conf.parse(text)) == told


OURS = f"""# Made by the HyperPod lifecycle scripts; what is set in slurm.conf itself is not repeated here.
JobRequeue=1
ReturnToService=2
SlurmdTimeout=60
KillWait=10
UnkillableStepTimeout=180
SchedulerParameters=batch_sched_delay=1,bf_interval=1,bf_max_time=30,max_rpc_cnt=150,max_switch_wait=3600,nohold_on_prolog_fail
PropagateResourceLimitsExcept=MEMLOCK,NOFILE,STACK
Prolog={BIN}/hyperpod-prolog
Epilog={BIN}/hyperpod-epilog
HealthCheckProgram={BIN}/hyperpod-health-check
HealthCheckInterval=300
HealthCheckNodeState=ANY,CYCLE
PrologFlags=Contain
GresTypes=gpu
SlurmctldParameters=enable_configless
Extra=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=10.1.0.10
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=limits,qos
JobAcctGatherType=jobacct_gather/linux
PriorityType=priority/multifactor
PriorityWeightQOS=100000
PriorityWeightFairshare=10000
PriorityWeightAge=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
PartitionName=DEFAULT TRESBillingWeights="CPU=0.001,GRES/gpu=1.0"
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=more Nodes=ALL Default=NO MaxTime=INFINITE State=UP
"""


def test_everything_that_may_be_added_is_added_where_slurm_conf_says_nothing() -> None:
    controller = {"controller": replace(group("controller", "ml.m5.large"), partition="none")}
    groups = {**controller, **P5, "twins": replace(P5["workers"], partition="more")}
    ask: Any = (groups, {}, BIN, True, "10.1.0.10", True, {"Extra": "1"})
    assert slurm_conf.render(slurm_conf.parse("ClusterName=x\n"), *ask) == OURS
    # What a person has decided stays, and their program runs as they have it run.
    own = slurm_conf.parse("HealthCheckProgram=/x\n" + "".join(OURS.splitlines(keepends=True)[1:9]))
    lines = slurm_conf.render(own, *ask).splitlines()
    assert not [line for line in lines if line.startswith(("HealthCheck", "Prolog=", "Kill", "Job", "Return"))][1:]
    # slurm.conf(5): only one of the two may be there.
    limits = slurm_conf.render(slurm_conf.parse("PropagateResourceLimits=CORE\n"), *ask)
    assert "Propagate" not in limits
    without = slurm_conf.render(slurm_conf.parse("ClusterName=x\n"), {}, {}, BIN, database="db")
    assert not [word for word in ("Gres", "TRESBilling", "PartitionName", "Contain") if word in without]
    assert f"TaskProlog={BIN}/hyperpod-task-prolog\n" in without
    # Slurm reads no further than a name without a value: "Parse error in file ... AccountingStorageTRES=".
    assert not re.findall(r"^\w+=$", without, re.M)


def test_a_job_may_wait_for_near_nodes_as_long_as_the_guide_says() -> None:
    """Slurm waits no longer than max_switch_wait, 300 seconds by default, whatever a job says (slurm.conf(5))."""
    text = (Path(__file__).parents[3] / "docs/slurm.md").read_text()
    (minutes,) = re.findall(r"--switches=1@(\d+):00 ", text)
    (most,) = re.findall(r"max_switch_wait=(\d+)", OURS)
    assert int(minutes) * 60 <= int(most)
    assert f"for {int(most) // 60} minutes at most" in text


def test_accelerators_of_two_kinds_are_counted_and_cost_by_their_names() -> None:
    kinds = ["gpu", "neuron"]
    assert slurm_conf.accounting_settings("h", kinds)["AccountingStorageTRES"] == "gres/gpu,gres/neuron"
    weights = 'PartitionName=DEFAULT TRESBillingWeights="CPU=0.001,GRES/gpu=1.0,GRES/neuron=1.0"'
    assert slurm_conf.accounting_partition_defaults(kinds) == [weights]
    both = {**P5, "other": replace(P5["workers"], gres="neuron", accelerators=16)}
    assert "GresTypes=gpu,neuron\n" in slurm_conf.render(slurm_conf.parse(""), both, {}, BIN)


def test_a_worker_group_without_accelerators_has_no_device_and_says_so_where_others_have() -> None:
    plain = replace(P5["workers"], gres="", accelerators=0)
    assert slurm_conf.gres(plain) == ""
    assert gres.render({"a": plain}).splitlines()[1:] == ["AutoDetect=off"]
    assert gres.render({"a": plain, "b": P5["workers"]}).splitlines()[2:] == [
        "NodeName=b Name=gpu File=/dev/nvidia[0-7]"
    ]
    text = "NodeName=a CPUs=8\nNodeName=b CPUs=8\n"
    both = {"plain": plain, **P5}
    lines = gres.with_gres(text, {"a": plain, "b": P5["workers"]}, both).splitlines()
    assert lines == ["NodeName=a CPUs=8 Gres=gpu:0", "NodeName=b CPUs=8 Gres=gpu:8"]
    assert gres.with_gres(text, {"a": plain}, {"plain": plain}) == text


@pytest.mark.parametrize(
    "line",
    ["NodeName=DEFAULT CPUs=8", "NodeName=a gres = CPUs=8", "NodeName=a CPUs=8 # Gres=gpu:8", "NodeName=c CPUs=8"],
)
def test_a_line_gets_gres_where_it_is_a_known_nodes_and_has_none_outside_of_comments(line: str) -> None:
    got = gres.with_gres(f"{line}\n", {"a": P5["workers"]}, {**P5, **G5})
    assert got == (f"{line} Gres=gpu:8\n" if "#" in line else f"{line}\n")


def test_what_slurm_would_refuse_is_left_to_slurm() -> None:
    # A range of more nodes than any cluster has would fill the memory.
    assert len(slurm_conf.expand("n[0-65535]")) == 65536
    for name in ("n[0-65536]", "n[a-b]", "n[1-]", "n[3-1]", "n[0000000001]"):
        assert slurm_conf.expand(name) == [name]
    assert slurm_conf.expand("n[8-10]") == ["n8", "n9", "n10"]
    assert slurm_conf.expand("n[1-3,7]") == ["n1", "n2", "n3", "n7"]
    assert slurm_conf.expand("n[08-10]-x,m") == ["n08-x", "n09-x", "n10-x", "m"]
    assert slurm_conf.expand("n[007]x,m[1]") == ["n007x", "m1"]
    for said, port in (("7000-7002", 7000), ("99999", 99999), ("123456", 1), ("x", 1), ("", 1)):
        assert slurm_conf.parse(f"SlurmctldPort={said}\n").port("SlurmctldPort", 1) == port


def test_hosts_defaults_and_quotes_are_read_as_slurm_reads_them() -> None:
    conf = slurm_conf.parse(
        "SlurmctldHost=a\nSlurmctldHost = b.example(10.1.0.1)\nslurmctldhost=c()\n"
        'NodeName=default CPUs=2\nPartitionName=Default State=UP\nPartitionName=p\nKey="two words" Other=1\n'
    )
    assert conf.controllers == (("a", ""), ("b.example", "10.1.0.1"), ("c", ""))
    assert (conf.nodes, conf.partitions) == ((), ("p",))
    assert (conf.get("KEY"), conf.get("other"), conf.get("none"), conf.get("none", "d")) == ("two words", "1", "", "d")


def test_included_files_are_read_four_deep_and_never_within_themselves() -> None:
    def read(name: str) -> str | None:
        if name == "self":
            return "include self X\n\n"
        return f"L{name}=1\n include {int(name) + 1}\n" if name.isdigit() else None

    assert slurm_conf.inline("A=1\n\tInclude self # why\nB=1\n", read) == "A=1\ninclude self X\nB=1\n"
    assert slurm_conf.inline("include 1\n", read) == "L1=1\nL2=1\nL3=1\nL4=1\n include 5\n"
    assert slurm_conf.inline("include none\n#include 1\n", read) == "include none\n#include 1\n"


def test_the_include_line_is_known_and_found_however_it_is_written() -> None:
    written = " INCLUDE /opt/slurm/etc/hyperpod.conf \nA=1\n"
    assert slurm_conf.with_include(written) == written
    assert slurm_conf.without_include(written) == "A=1\n"
    assert slurm_conf.without_include("include hyperpodxconf\n") == "include hyperpodxconf\n"
    for first in ("nodename = a", "  partitionname=p"):
        assert slurm_conf.with_include(f"A=1\n{first}\n") == f"A=1\ninclude hyperpod.conf\n{first}\n"
    assert slurm_conf.carrier("A=1\nINCLUDE /etc/accounting.conf\n") == "/etc/accounting.conf"
    assert slurm_conf.carrier("include accounting.conf.old\n") is None
    for line in ("nodename = a", "partitionname=p"):
        assert slurm_conf.carrier(f"{line}\ninclude accounting.conf\n") is None


def test_only_a_line_of_login_nodes_alone_is_hidden() -> None:
    text = "NodeName=l[1-2] state=IDLE CPUs=2 # why\nNodeName=l2,w1 State=IDLE\n#NodeName=l1\nA=1\n"
    assert slurm_conf.with_future(text, {"l1", "l2"}).splitlines() == [
        "NodeName=l[1-2] CPUs=2 State=FUTURE",
        "NodeName=l2,w1 State=IDLE",
        "#NodeName=l1",
        "A=1",
    ]


def test_login_nodes_are_known_by_address_host_or_hyperpods_name_and_others_are_not() -> None:
    login = replace(group("login", "ml.m5.large"), role="login")
    there: dict[str, Group] = {"login": login, **P5}
    instances = [
        Instance("login", "login-1", "10.1.0.11", "i-1"),
        Instance("login", "login-2", "", "i-2"),
        Instance("workers", "workers-1", "10.1.0.12", "i-3"),
        Instance("gone", "gone-1", "10.1.0.13", "i-4"),
    ]
    names = "NodeName=a,b NodeAddr=10.1.0.12,10.1.0.11\nNodeName=ip-10-1-0-11\nNodeName=login-2,workers-1,gone-1\n"
    found = slurm_conf.login_nodes(slurm_conf.parse(names + "NodeName=c,d NodeAddr=10.1.0.12\n"), instances, there)
    assert found == {"b", "ip-10-1-0-11", "login-2"}


def test_a_node_that_nothing_tells_of_is_of_the_only_worker_group_if_there_is_one() -> None:
    conf = slurm_conf.parse("NodeName=x,y NodeAddr=10.9.0.1\n")
    assert slurm_conf.groups_of_nodes(conf, [], {}, P5) == {"x": P5["workers"], "y": P5["workers"]}
    assert slurm_conf.groups_of_nodes(conf, [], {"y": "small"}, {**P5, **G5}) == {"y": G5["small"]}
    login = {"login": replace(group("login", "ml.m5.large"), role="login")}
    assert slurm_conf.groups_of_nodes(conf, [], {"x": "login"}, login) == {}


def test_nodes_of_one_kind_need_no_default_where_each_has_its_own() -> None:
    nodes = "".join(f"NodeName={name} Gres=gpu:8\n" for name in "ab")
    assert gres.default(slurm_conf.parse(nodes), P5) == ""
    assert gres.default(slurm_conf.parse(nodes + "NodeName=c\n"), P5) == "NodeName=DEFAULT Gres=gpu:8\n"

"""Each worker group's own partition in Slurm, and the features of its nodes."""

from dataclasses import replace
from pathlib import Path

import pytest
from hyperpod_node.facts.model import ConfFile, Group, Instance
from hyperpod_node.slurm import conf as slurm_conf
from hyperpod_node.slurm import configure, partitions

from components.catalogue.accelerators import ACCELERATORS
from tests.lifecycle.rig import World, group


def groups(**types: str) -> dict[str, Group]:
    return {name: replace(group(name, kind), partition="gpu") for name, kind in types.items()}


ONE = groups(workers="ml.p5.48xlarge")
TWO = groups(reserved="ml.p5.48xlarge", trial="ml.g5.16xlarge")


def test_each_group_has_a_partition_with_its_nodes_by_a_feature_and_only_one_group_sets_a_default() -> None:
    assert partitions.render(TWO, {}, ()).splitlines() == [
        "NodeSet=hyperpod-reserved Feature=group-reserved",
        "PartitionName=reserved Nodes=hyperpod-reserved MaxTime=INFINITE State=UP",
        "NodeSet=hyperpod-trial Feature=group-trial",
        "PartitionName=trial Nodes=hyperpod-trial MaxTime=INFINITE State=UP",
    ]
    head = replace(group("controller", "ml.m5.large"), role="controller")
    assert partitions.render({"controller": head, **ONE}, {}, ()).splitlines() == [
        "NodeName=DEFAULT Features=ml.p5.48xlarge,usw2-az2,group-workers",
        "NodeSet=hyperpod-workers Feature=group-workers",
        "PartitionName=workers Nodes=hyperpod-workers MaxTime=INFINITE State=UP",
    ]


@pytest.mark.parametrize("name", ["default", "Default", "dev", "hyperpod-system-maintenance", "gpu"])
def test_a_group_takes_no_partition_of_others(name: str) -> None:
    assert "Partition" not in partitions.render(groups(**{name: "ml.p5.48xlarge"}), {}, ())


def test_a_partition_that_is_made_elsewhere_is_not_made_twice_and_may_have_the_groups_nodes() -> None:
    """slurmctld ends where slurm.conf defines a partition twice."""
    found = partitions.render(TWO, {}, {"trial"})
    assert "NodeSet=hyperpod-trial Feature=group-trial\n" in found
    assert "PartitionName=trial" not in found
    assert "PartitionName=reserved" in found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("NodeName=a CPUs=8 # mine", "NodeName=a CPUs=8 Features=ml.p5.48xlarge,usw2-az2,group-reserved"),
        ("NodeName=b CPUs=8", "NodeName=b CPUs=8 Features=ml.g5.16xlarge,usw2-az2,group-trial"),
        (
            "NodeName=a Feature=x,usw2-az2 CPUs=8",
            "NodeName=a Feature=x,usw2-az2,ml.p5.48xlarge,group-reserved CPUs=8",
        ),
        # Nodes of two groups, nodes of none, and what is no node.
        ("NodeName=a,b CPUs=8", "NodeName=a,b CPUs=8"),
        ("NodeName=c CPUs=8", "NodeName=c CPUs=8"),
        ("# NodeName=a", "# NodeName=a"),
    ],
)
def test_lines_of_nodes_get_their_groups_features_beside_their_own(line: str, wanted: str) -> None:
    by_node = {"a": TWO["reserved"], "b": TWO["trial"]}
    once = partitions.with_features(f"{line}\n", by_node, TWO)
    assert once == f"{wanted}\n"
    assert partitions.with_features(once, by_node, TWO) == once


def test_a_default_covers_lines_without_features_of_their_own() -> None:
    text, by_node = "NodeName=a CPUs=8\nNodeName=b Features=x\n", {"a": ONE["workers"], "b": ONE["workers"]}
    assert partitions.with_features(text, by_node, ONE).splitlines() == [
        "NodeName=a CPUs=8",
        "NodeName=b Features=x,ml.p5.48xlarge,usw2-az2,group-workers",
    ]


def test_a_group_without_accelerators_is_in_no_partition_of_others_and_is_preferred_for_jobs_that_need_none() -> None:
    cpus = replace(TWO["trial"], name="prepare", partition="prepare", accelerator="", accelerators=0, gres="")
    both = {"prepare": cpus, "reserved": TWO["reserved"]}
    nodes = {"a": TWO["reserved"], "b": cpus}
    # HyperPod's agent makes its partition, perhaps after the scripts have run.
    assert "PartitionName=prepare" not in partitions.render(both, {}, ())
    assert "PartitionName=prepare" not in partitions.render(both, nodes, {"prepare"})
    assert "PartitionName=prepare Nodes=hyperpod-prepare" in partitions.render(both, nodes, ())
    lines = partitions.with_features("NodeName=a\nNodeName=b\nNodeName=a Weight=3\n", nodes, both).splitlines()
    assert [" Weight=100 " in line for line in lines] == [True, False, False]
    conf = slurm_conf.parse("PartitionName=dev Nodes=ALL\n")
    shared = [line for line in slurm_conf.render(conf, both, nodes, "/bin").splitlines() if "Partition" in line]
    assert shared == ["PartitionName=gpu Nodes=hyperpod-reserved Default=NO MaxTime=INFINITE State=UP"]


def test_the_controller_writes_both_and_leaves_a_partition_of_the_stacks_own_lines_to_them(world: World) -> None:
    host = world.node("controller")
    conf = host.path("/opt/slurm/etc/slurm.conf")
    conf.write_text(
        "ClusterName=x\nNodeName=a NodeAddr=10.1.0.2\nNodeName=b NodeAddr=10.1.0.3\nPartitionName=dev Nodes=ALL\n"
    )
    there = [Instance("reserved", "r-1", "10.1.0.2", "i-1"), Instance("trial", "t-1", "10.1.0.3", "i-2")]
    known = host.remember(instance_groups=tuple(TWO.values()))
    own = [ConfFile("10-own.conf", "PartitionName=trial Nodes=hyperpod-trial MaxTime=60\n")]
    assert configure.configure(host, known, there, own)
    ours = host.text("/opt/slurm/etc/hyperpod.conf")
    assert "PartitionName=reserved " in ours
    assert "PartitionName=trial" not in ours
    assert [line.rpartition(",")[2] for line in conf.read_text().splitlines() if "NodeName" in line] == [
        "group-reserved",
        "group-trial",
    ]
    assert not configure.configure(host, known, there, own)


def test_the_names_that_are_refused_are_those_of_the_documents() -> None:
    text = (Path(__file__).parents[3] / "docs/slurm.md").read_text()
    for name in (*partitions.RESERVED, *(one.slurm_partition for one in ACCELERATORS.values())):
        assert f"`{name}`" in text

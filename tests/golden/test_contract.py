"""The contract between the program and the nodes: what one renders, the other reads, all of it and nothing else."""

import ast
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import Group, Parameters

from components.catalogue.accelerators import InstanceType
from components.common.names import Names, for_stack
from components.config import Config
from components.nodes import provisioning
from tests.golden.stacks import GOLDEN
from tests.support import ROOT, config

LIFECYCLE = ROOT / "lifecycle"


def names(found: Config) -> Names:
    return for_stack(
        cluster=found.settings.cluster_name,
        region=found.region.name,
        account="123456789012",
        project="hyperpod",
        stack="any",
    )


def read(found: Config) -> Parameters:
    """What a node makes of the text that the program renders."""
    return parameters.parse(json.loads(provisioning.render(found, names(found))), parameters.FILE_NAME)


def facts(of: type[Group | Parameters | InstanceType]) -> set[str]:
    return {field.name for field in fields(of)}


def used(file: Path) -> set[str]:
    """The attributes that a module reads, and the keys it looks up, as the commands do in node.json."""
    return {
        node.attr if isinstance(node, ast.Attribute) else str(getattr(node.slice, "value", ""))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute | ast.Subscript)
    }


@pytest.mark.parametrize("name", GOLDEN)
def test_a_node_reads_what_the_program_knows(name: str) -> None:
    chosen = GOLDEN[name]
    found = config(chosen.stack, **chosen.settings)
    assert read(found) == provisioning.facts(found, names(found))


def test_every_fact_is_used_on_the_nodes() -> None:
    there = set().union(*map(used, LIFECYCLE.rglob("*.py")))
    assert facts(Group) | facts(Parameters) <= there


@pytest.mark.parametrize("name", GOLDEN)
def test_nodes_understand_what_the_configuration_says(name: str) -> None:
    chosen = GOLDEN[name]
    found = config(chosen.stack, **chosen.settings)
    settings, called, node = found.settings, names(found), read(found)
    assert (node.cluster_name, node.cluster_id, node.region) == (called.cluster, called.cluster_id, found.region.name)
    assert (node.orchestrator, node.imds_v1) == (settings.orchestrator, settings.imds_v1)
    home = "openzfs" if settings.fsx.home_storage_gib else settings.fsx.home_file_system_id
    assert (node.fsx_efa, node.home_fsx_id) == (settings.fsx.efa, home)
    assert node.fsx_id == settings.fsx.file_system_id
    assert node.lost_after_seconds == settings.lost_node_seconds
    assert (node.ssh_public_key_parameter is None) == (settings.ssh_public_key is None)
    own = [] if settings.network.vpc_id else [settings.network.cidr, settings.network.secondary_cidr]
    assert list(node.cidrs) == [cidr for cidr in own if cidr]
    shared = facts(Group) & facts(InstanceType) - {"name"}
    assert len(shared) > 8
    for group in found.instance_groups:
        row = node.groups[group.name]
        assert (row.role, row.instance_type) == (group.role, group.type.name)
        assert {fact: getattr(row, fact) for fact in shared} == {fact: getattr(group.type, fact) for fact in shared}
    assert list(node.groups) == [group.name for group in found.instance_groups]

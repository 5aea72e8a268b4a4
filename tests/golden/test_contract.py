"""The contract between the program and the nodes: what one renders, the other reads, all of it and nothing else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hyperpod_node import parameters
from hyperpod_node.model import Group

from components import provisioning
from components.catalogue.accelerators import InstanceType
from components.config import Config
from components.names import Names, for_stack
from tests.golden.stacks import GOLDEN
from tests.support import config


def names(found: Config) -> Names:
    return for_stack(
        cluster=found.settings.cluster_name,
        region=found.region.name,
        account="123456789012",
        project="hyperpod",
        stack="any",
    )


class Watched(Mapping[str, Any]):
    """A JSON object that remembers which of its keys were asked for, and how they were called from the top."""

    def __init__(self, content: Mapping[str, Any], asked: set[str], path: str = "") -> None:
        self._content, self._asked, self._path = content, asked, path

    def __getitem__(self, key: str) -> Any:
        self._asked.add(f"{self._path}{key}")
        value = self._content[key]
        if isinstance(value, list):
            return [self._below(key, item) for item in value]
        return self._below(key, value)

    def _below(self, key: str, value: Any) -> Any:
        return Watched(value, self._asked, f"{self._path}{key}.") if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        for key in self._content:
            self._asked.add(f"{self._path}{key}")
            yield key

    def __len__(self) -> int:
        return len(self._content)


def keys(value: Any, path: str = "") -> set[str]:
    """The paths of every key of a document."""
    if isinstance(value, list):
        return {key for item in value for key in keys(item, path)}
    if not isinstance(value, dict):
        return set()
    return {f"{path}{key}" for key in value} | {k for key, item in value.items() for k in keys(item, f"{path}{key}.")}


def fields(of: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(of)}


@pytest.mark.parametrize("name", GOLDEN)
def test_nodes_read_every_key_that_the_program_renders_and_no_other(name: str) -> None:
    chosen = GOLDEN[name]
    found = config(chosen.stack, **chosen.settings)
    document = json.loads(provisioning.render(found, names(found)))
    asked: set[str] = set()
    parameters.parse(Watched(document, asked), "hyperpod_parameters.json")
    assert asked == keys(document)


@pytest.mark.parametrize("name", GOLDEN)
def test_nodes_understand_what_the_configuration_says(name: str) -> None:
    chosen = GOLDEN[name]
    found = config(chosen.stack, **chosen.settings)
    settings, called = found.settings, names(found)
    read = parameters.parse(json.loads(provisioning.render(found, called)), "hyperpod_parameters.json")
    assert (read.cluster_name, read.cluster_id, read.region) == (called.cluster, called.cluster_id, found.region.name)
    assert (read.orchestrator, read.accelerator) == (settings.orchestrator, settings.accelerator)
    assert read.fsx_tag == ("hyperpod:cluster-id", called.cluster_id)
    assert (read.fsx_efa, read.home_fsx_id) == (settings.fsx.efa, settings.fsx.home_file_system_id)
    assert (read.imds_v1, read.lost_after_seconds) == (settings.imds_v1, settings.lost_node_seconds)
    assert (read.ssh_public_key_parameter is None) == (settings.ssh_public_key is None)
    own = [] if settings.network.vpc_id else [settings.network.cidr, settings.network.secondary_cidr]
    assert list(read.cidrs) == [cidr for cidr in own if cidr]
    facts = fields(Group) & fields(InstanceType) - {"name"}
    assert len(facts) > 8
    for group in found.instance_groups:
        node = read.groups[group.name]
        assert (node.role, node.instance_type, node.count) == (group.role, group.type.name, group.count)
        assert {fact: getattr(node, fact) for fact in facts} == {fact: getattr(group.type, fact) for fact in facts}
    assert list(read.groups) == [group.name for group in found.instance_groups]

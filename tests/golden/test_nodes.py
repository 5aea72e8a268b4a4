"""What a first boot leaves on every kind of node is what is written down: files, modes, units, commands, figures."""

import pytest

from tests.golden import files
from tests.golden.figures import FIGURES, given
from tests.golden.nodes import CLUSTERS, NODES, Nodes, booted


def written(cluster: str) -> Nodes:
    """The golden files of a cluster's nodes, with what they share with their base."""
    own, base = files.read(NODES / cluster), CLUSTERS[cluster]
    return files.whole(own, written(base) if base else {})


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_kind_of_node_boots_to_what_is_written_down(cluster: str) -> None:
    difference = files.told(written(cluster), booted(cluster))
    assert not difference, f"tests/golden/nodes/{cluster}:\n{difference}"


def test_every_figure_of_a_node_is_what_is_written_down() -> None:
    difference = files.told(files.read(FIGURES), given())
    assert not difference, f"tests/golden/figures:\n{difference}"

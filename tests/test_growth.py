"""The benchmarks of size, in small: what they call growth, and that each part of benchmarks/fleet.py runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fleet
from benchmarks.growth import draw, faster_than_size
from tests.support import few_files


def test_only_what_grows_faster_than_the_size_is_named() -> None:
    rows = {
        (1, 10): {"fixed, s": 3.0, "linear": 5.0, "square": 1.0, "noise, ms": 1.0},
        (1, 100): {"fixed, s": 3.0, "linear": 50.0, "square": 100.0, "noise, ms": 19.0},
        (10, 100): {"fixed, s": 3.0, "linear": 500.0, "square": 100.0, "noise, ms": 19.0},
    }
    assert list(faster_than_size(rows)) == ["square: 1.0 with (1, 10) groups and nodes, 100.0 with (1, 100)"]


@pytest.mark.slow
def test_a_picture_of_the_same_figures_is_the_same(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw({"Slurm": {"idle": [(10, 1.0), (100, 12.0)]}}, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert ">Slurm<" in (tmp_path / "one.svg").read_text()


def test_generated_configuration_names_each_node_once() -> None:
    few, many = fleet.configuration(2, 10), fleet.configuration(2, 40)
    assert many["hyperpod_parameters.json, KiB"] == few["hyperpod_parameters.json, KiB"]
    assert 0 < many["slurm.conf, KiB"] - few["slurm.conf, KiB"] < 30 * 0.15


@pytest.mark.slow
def test_verbs_ask_no_more_of_aws_for_more_nodes() -> None:
    with few_files():
        few, many = fleet.verbs(1, 9), fleet.verbs(1, 90)
    calls = {name: (few[name], many[name]) for name in few if not name.endswith(", s")}
    assert {name for name, (before, after) in calls.items() if before != after} == set(), calls


@pytest.mark.slow
def test_the_program_is_measured_with_all_its_groups() -> None:
    with few_files():
        assert fleet.program(2, 2)["resources"] == fleet.program(3, 3)["resources"]

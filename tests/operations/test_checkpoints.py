"""``job checkpoints``: sizes, seconds and intervals, by figures that others have published or a hand has added up."""

import json
from typing import Any

import pytest

from components.catalogue.accelerators import lookup
from operations.failures import Exit
from operations.spending.checkpoints import optimum
from tests.golden.stacks import VPC
from tests.operations.aws import ended, ended_json
from tests.rows import each

MINUTE = 60.0


@each(((24 * 60, 117.0), (6 * 60, 57.0), (15, 9.1)))
def test_the_interval_is_dalys_for_his_own_examples(between_min: float, every_min: float) -> None:
    """A checkpoint of five minutes, and failures every 24 hours, 6 hours and 15 minutes: his figures 3 to 5."""
    assert optimum(5 * MINUTE, between_min * MINUTE) / MINUTE == pytest.approx(every_min, abs=0.5)


def test_a_checkpoint_that_takes_longer_than_two_failures_is_saved_between_any_two() -> None:
    assert optimum(100.0, 50.0) == 50.0


def asked(*words: str) -> Any:
    return ended_json(Exit.GOOD, "job", "checkpoints", *words)


def test_size_seconds_failures_and_dollars_add_up() -> None:
    found = asked("slurm-gpu", "--parameters", "70B", "-c", "hyperpod:size=large")
    assert (found["bytes"], found["nodes"], found["accelerators"]) == (980e9, 32, 256)
    assert found["failures_a_day"] == pytest.approx(419 / 54 / 64)
    s3, fsx = found["tiers"]
    assert (s3["name"], s3["bytes_per_s"], s3["save_s"]) == ("S3", 32 * 12.5e9, pytest.approx(2.45))
    # 14,400 GiB at 250 MB/s a TiB.
    assert (fsx["name"], fsx["bytes_per_s"]) == ("/fsx", pytest.approx(14_400 / 1024 * 250e6))
    hourly = 32 * (lookup("ml.p5.48xlarge").hourly_usd or 0.0)
    for tier in found["tiers"]:
        assert sum(choice["recommended"] for choice in tier["choices"]) == 1
        costs = [choice["saving_h"] + choice["redone_h"] for choice in tier["choices"]]
        best = next(choice for choice in tier["choices"] if choice["recommended"])
        assert best["saving_h"] + best["redone_h"] == min(costs), "no other interval is cheaper"
        for cost, choice in zip(costs, tier["choices"], strict=True):
            assert float(choice["usd"].replace(",", "")) == pytest.approx(cost * hourly, abs=0.01)
    hour = next(choice for choice in fsx["choices"] if choice["every_s"] == 3600)
    assert hour["saving_h"] == pytest.approx(24 * fsx["save_s"] / (3600 + fsx["save_s"]))
    assert hour["redone_h"] == pytest.approx(found["failures_a_day"] * (3600 + fsx["save_s"]) / 7200)


def test_memory_is_the_first_tier_where_the_stack_has_it_and_says_if_it_is_too_small() -> None:
    without = asked("eks-gpu", "--parameters", "8B")
    assert "memory" not in [tier["name"] for tier in without["tiers"]]
    assert any("checkpointMemoryPercent" in note for note in without["notes"])
    on = ("-c", f"hyperpod:charts={json.dumps({'checkpointMemoryPercent': 30})}")
    for parameters, small in (("8B", False), ("70B", True)):
        found = asked("eks-gpu", "--parameters", parameters, *on)
        assert found["tiers"][0]["name"] == "memory"
        assert any("do not fit into 30 %" in note for note in found["notes"]) is small


def test_a_file_system_of_others_is_left_out_and_one_that_is_too_small_is_told_of() -> None:
    kept = (
        "-c",
        f"hyperpod:network={json.dumps(VPC)}",
        "-c",
        'hyperpod:fsx={"fileSystemId":"fs-0123456789abcdef0"}',
    )
    found = asked("slurm-gpu", "--parameters", "8B", *kept)
    assert [tier["name"] for tier in found["tiers"]] == ["S3"]
    assert any("fs-0123456789abcdef0" in note for note in found["notes"])
    small = asked("slurm-gpu", "--parameters", "405B")
    assert any("a checkpoint does not fit" in note for note in small["notes"])


def test_a_table_of_80_columns_marks_the_recommended_intervals() -> None:
    out, _ = ended(Exit.GOOD, "job", "checkpoints", "slurm-gpu", "--parameters", "70B", "--bytes-per-parameter", "12")
    assert "840 GB (12 bytes a parameter)" in out
    table = [line for line in out.splitlines() if line.startswith(("S3", "/fsx", "tier"))]
    assert sum(" * " in line for line in table) == 2
    assert max(map(len, table)) <= 80

"""``cost``: the tables' figures with their sources, and AWS's own with --live."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from operations import costs
from operations.aws import Aws
from operations.failures import Exit
from tests.operations.aws import StubbedAws, run, run_json, stack
from tests.support import READY_STACKS

On = Callable[[Aws], None]


def product(usage: str, usd: str, unit: str = "Hrs") -> str:
    """One of the price list's products."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})


def put(aws: StubbedAws, *prices: list[str]) -> None:
    """The price list's answers, product lists by question; nothing after them."""
    questions = 2 + len(costs._USAGE)
    for number in range(questions):
        found = prices[number] if number < len(prices) else []
        aws.answer("pricing/us-east-1", "get_products", {"PriceList": found})


@pytest.mark.parametrize("name", READY_STACKS)
def test_every_stack_has_a_bill_with_sources_and_no_account(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_json(capsys, "cost", name)
    assert code == Exit.GOOD
    assert found["hourly_usd"] == pytest.approx(sum(found["parts"].values()))
    assert found["monthly_usd"] == pytest.approx(found["hourly_usd"] * 730)
    assert any("publication" in source or "Price" in source for source in found["sources"])
    assert "figures of 20" in found["sources"][-1]


def test_live_prices_take_the_place_of_the_tables(aws: StubbedAws, on: On, capsys: pytest.CaptureFixture[str]) -> None:
    controller = [product("USW2-Host:ml.m5.2xlarge", "99"), product("USW2-Cluster:ml.m5.2xlarge", "0.5")]
    workers = [product("USW2-Cluster:ml.g5.16xlarge", "6")]
    volumes = [product("USW2-Cluster:VolumeUsage.gp2", "0.2", "GB-Mo")]
    put(aws, controller, workers, volumes)
    on(aws)
    code, found = run_json(capsys, "cost", "dev", "--live")
    assert code == Exit.GOOD
    assert found["parts"]["workers (2 x ml.g5.16xlarge)"] == 12
    assert found["parts"]["controller (1 x ml.m5.2xlarge)"] == 0.5
    assert found["parts"]["node volumes"] == pytest.approx(1200 * 0.2 / 730)
    # Not in the list: the table's.
    assert found["parts"]["NAT gateway"] == pytest.approx(0.05)
    assert "ml.g5.16xlarge" in found["sources"][0]
    aws.assert_all_asked()


def test_prices_come_from_every_page(aws: StubbedAws) -> None:
    for page in range(3):
        more = {"NextToken": f"p{page}"} if page < 2 else {}
        found = [product("USW2-Cluster:ml.m5.2xlarge", "0.7")] if page == 2 else []
        aws.answer("pricing/us-east-1", "get_products", {"PriceList": found, **more})
    put(aws)
    rates = costs.live_rates(stack(aws).config, aws)
    assert rates == {"ml.m5.2xlarge": 0.7}


def test_free_tiers_and_units_that_are_not_time_are_no_price(aws: StubbedAws) -> None:
    put(aws, [product("Cluster:ml.m5.2xlarge", "0"), product("Cluster:ml.m5.2xlarge", "5", "Requests")])
    assert costs.live_rates(stack(aws).config, aws) == {}


def test_a_broken_price_list_is_a_failure_and_no_traceback(
    aws: StubbedAws, on: On, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.refuse("pricing/us-east-1", "get_products", "InternalErrorException", "try later")
    on(aws)
    code, _, err = run(capsys, "cost", "dev", "--live")
    assert code == Exit.FAILED
    assert "try later" in err


def test_the_table_reads_well(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "cost", "slurm-gpu")
    assert code == Exit.GOOD
    lines: list[Any] = out.splitlines()
    assert lines[0].startswith("slurm-gpu: $")
    assert "of it accelerators" in lines[0]
    assert lines[2].startswith("workers (2 x ml.p5.48xlarge)")

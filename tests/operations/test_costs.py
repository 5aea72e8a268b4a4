"""``cost``: the tables' figures with their sources, and AWS's own with --live."""

import json
from typing import Any

import pytest

from components.estimates import cost
from operations.failures import Exit
from operations.spending import costs
from tests.operations.aws import StubbedAws, ended, ended_json, run, run_json, stack
from tests.support import READY_STACKS


def product(usage: str, usd: str, unit: str = "Hrs") -> str:
    """One of the price list's products."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}}
    return json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})


def lustre(throughput: str, usd: str) -> str:
    """A tier of FSx for Lustre, as the price list has it."""
    made = json.loads(product("USW2-Storage.Lustre", usd, "GB-Mo"))
    made["product"]["attributes"] |= {
        "fileSystemType": "Lustre",
        "storageType": "SSD",
        "throughputCapacity": throughput,
    }
    return json.dumps(made)


def put(aws: StubbedAws, *prices: list[str]) -> None:
    """The price list's answers for the stack dev, product lists by question; nothing after them."""
    questions = 7  # two instance types, volumes, FSx, endpoints, and two for the NAT gateway
    for number in range(questions):
        found = prices[number] if number < len(prices) else []
        aws.answer("pricing/us-east-1", "get_products", {"PriceList": found})


@pytest.mark.parametrize("name", READY_STACKS)
def test_every_stack_has_a_bill_with_sources_and_no_account(name: str) -> None:
    found = ended_json(Exit.GOOD, "cost", name)
    assert found["hourly_usd"] == pytest.approx(sum(found["parts"].values()))
    assert found["monthly_usd"] == pytest.approx(found["hourly_usd"] * 730)
    assert any("publication" in source or "Price" in source for source in found["sources"])
    assert "figures of 20" in found["sources"][-1]


def test_prices_of_another_region_are_said_to_be_and_a_configuration_can_be_tried() -> None:
    there = ("--config", "aws:region=eu-central-1", "-c", "hyperpod:availabilityZoneId=euc1-az2")
    out, _ = ended(Exit.GOOD, "cost", "dev", *there, "--config", "hyperpod:size=medium")
    assert "Warning: the prices are those of us-east-1 and us-west-2, not of eu-central-1" in out
    here = run_json("cost", "dev")[1]
    assert here["warnings"] == []
    assert run_json("cost", "dev", "--config", "hyperpod:size=medium")[1]["hourly_usd"] > here["hourly_usd"]
    elsewhere = run_json("cost", "dev", *there)[1]
    assert (elsewhere["hourly_usd"], set(elsewhere["parts"].values())) == (None, {None})
    assert elsewhere["estimated_hourly_usd"] == here["hourly_usd"]


def test_live_prices_take_the_place_of_the_tables(aws: StubbedAws) -> None:
    controller = [product("USW2-Host:ml.m5.2xlarge", "99"), product("USW2-Cluster:ml.m5.2xlarge", "0.5")]
    workers = [product("USW2-Cluster:ml.g5.16xlarge", "6")]
    volumes = [product("USW2-Cluster:VolumeUsage.gp2", "0.2", "GB-Mo")]
    tiers = [lustre("50", "9"), lustre("1250", "9"), lustre("250", "0.3"), lustre("1000", "9")]
    put(aws, controller, workers, volumes, tiers)
    found = ended_json(Exit.GOOD, "cost", "dev", "--live")
    assert found["parts"]["workers (2 x ml.g5.16xlarge)"] == 12
    assert found["parts"]["controller (1 x ml.m5.2xlarge)"] == 0.5
    assert found["parts"]["node volumes"] == pytest.approx(1200 * 0.2 / 730)
    # Not in the list: the table's.
    assert found["parts"]["NAT gateway"] == pytest.approx(0.05)
    assert "ml.g5.16xlarge" in found["sources"][0]
    assert found["parts"]["FSx for Lustre"] == pytest.approx(1200 * 0.3 / 730)
    # What is still at listed prices is named, and where they are from.
    assert found["sources"][1] == "from the tables, as without --live: VPC endpoints, NAT gateway"
    assert "list prices of us-east-1 and us-west-2 for VPC endpoints, NAT gateway" in found["notes"]
    traffic = "on top, by use, in us-east-1 and us-west-2: traffic through the NAT gateway ($0.045 a GB)"
    assert any(note.startswith(traffic) for note in found["notes"])
    aws.assert_all_asked()


def test_where_every_part_is_live_no_listed_price_is_claimed(aws: StubbedAws) -> None:
    config = stack(aws).config
    rates = {item: 1.0 for of in cost.quantities(config).values() for item in of}
    bill = costs.bill(config, rates)
    assert len(bill.sources) == 1
    assert not any("list prices" in note for note in bill.cost.notes)


def test_the_price_list_is_asked_for_the_file_systems_tier_in_the_stacks_region(aws: StubbedAws) -> None:
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in (("regionCode", "us-west-2"), ("fileSystemType", "Lustre"), ("storageType", "SSD"))
    ]
    answer = {"PriceList": [lustre("250 MB/s/TiB", "0.3")]}
    aws.answer("pricing/us-east-1", "get_products", answer, ServiceCode="AmazonFSx", Filters=filters)
    assert list(costs._rates(aws, "us-west-2", "fsx_lustre_250")) == [pytest.approx(0.3 / 730)]
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


def test_a_broken_price_list_is_a_failure_and_no_traceback(aws: StubbedAws) -> None:
    aws.refuse("pricing/us-east-1", "get_products", "InternalErrorException", "try later")
    _, err = ended(Exit.FAILED, "cost", "dev", "--live")
    assert "try later" in err


def test_the_table_reads_well() -> None:
    out, _ = ended(Exit.GOOD, "cost", "slurm-gpu")
    lines: list[Any] = out.splitlines()
    assert lines[0].startswith("slurm-gpu: $")
    assert "of it accelerators" in lines[0]
    assert lines[2].startswith("workers (2 x ml.p5.48xlarge)")
    assert any("list prices" in line for line in lines)


def test_quiet_leaves_the_table_alone() -> None:
    out = run("cost", "slurm-gpu")[1]
    quiet = run("cost", "slurm-gpu", "-q")[1]
    assert quiet == "".join(line for line in out.splitlines(keepends=True) if not line.startswith("  "))


def test_two_stacks_are_compared_part_by_part() -> None:
    _, found = run_json("cost", "dev", "slurm-gpu")
    bills = {stack: run_json("cost", stack)[1] for stack in ("dev", "slurm-gpu")}
    assert found["hourly_usd"] == {stack: bill["hourly_usd"] for stack, bill in bills.items()}
    assert found["difference"] == pytest.approx(bills["slurm-gpu"]["hourly_usd"] - bills["dev"]["hourly_usd"])
    assert sum(part["slurm-gpu"] - part["dev"] for part in found["parts"].values()) == pytest.approx(
        found["difference"]
    )
    assert found["parts"]["NAT gateway"]["dev"] == bills["dev"]["parts"]["NAT gateway"]
    assert "dev costs $121.86 an hour less than slurm-gpu" in run("cost", "slurm-gpu", "dev")[1]


UNKNOWN = '--config=hyperpod:workers=[{"name":"w","instanceType":"ml.g7e.48xlarge","count":615}]'


@pytest.mark.parametrize(
    ("options", "code", "within", "said"),
    [
        (("--max-hourly", "12"), Exit.GOOD, True, ""),
        (("--max-hourly", "11"), Exit.FAILED, False, "dev costs more than $11.00 an hour: $11.37 an hour"),
        (
            ("--max-hourly", "60", UNKNOWN),
            Exit.CANNOT_KNOW,
            None,
            "an hour is unknown: at least $59.91 an hour; price of 615 x ml.g7e.48xlarge unknown",
        ),
    ],
)
def test_a_guard_for_scripts_is_an_exit_code(
    options: tuple[str, ...], code: Exit, within: bool | None, said: str
) -> None:
    ended, out, err = run("cost", "dev", *options)
    assert (ended, "$/hour" in out) == (code, True)
    assert said in " ".join(err.split())
    ended, found = run_json("cost", "dev", *options)
    assert (ended, found["within"], found["max_hourly_usd"]) == (code, within, float(options[1]))


def test_a_price_of_aws_satisfies_the_guard(aws: StubbedAws) -> None:
    put(aws, [], [product("USW2-Cluster:ml.g7e.48xlarge", "40")])
    group = '[{"name":"w","instanceType":"ml.g7e.48xlarge","count":2}]'
    code, found = run_json("cost", "dev", "-c", f"hyperpod:workers={group}", "--live", "--max-hourly", "90")
    assert (code, found["within"], found["warnings"]) == (Exit.GOOD, True, [])


def test_an_estimate_is_marked_in_the_table() -> None:
    _, out, _ = run("cost", "dev", UNKNOWN)
    assert "at least $59.91 an hour; price of 615 x ml.g7e.48xlarge unknown; about $20,443.66" in out.splitlines()[0]
    row = next(line for line in out.splitlines() if line.startswith("w (615"))
    assert row.split()[-2] == "~20,383.757"
    assert "Warning: HyperPod's price of 615 x ml.g7e.48xlarge is unknown" in out


def test_a_comparison_with_an_unknown_price_has_no_difference() -> None:
    _, found = run_json("cost", "dev", "slurm-gpu", UNKNOWN)
    assert (found["difference"], found["hourly_usd"]["dev"]) == (None, None)
    assert found["warnings"]
    _, out, _ = run("cost", "dev", "slurm-gpu", UNKNOWN)
    assert "dev: at least" in out
    assert "unknown" in next(line for line in out.splitlines() if line.startswith("w (615"))


def test_a_comparison_takes_no_guard() -> None:
    assert run("cost", "dev", "slurm-gpu", "--max-hourly", "5")[0] == Exit.BAD_INPUT

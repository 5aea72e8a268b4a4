from datetime import date
from typing import Any, get_args

import pytest

from components.catalogue.kubernetes_versions import KUBERNETES_VERSIONS
from components.catalogue.prices import PRICES, Price, Unit, UnknownPrice, price
from components.config import parse
from components.estimates.amounts import Cost, difference, known
from components.estimates.cost import estimate, quantities, usage
from tests.golden.stacks import GOLDEN, on_the_day
from tests.rows import each
from tests.support import config, project


@each(PRICES)
def test_every_figure_is_positive_has_a_unit_and_names_its_source(row: Price) -> None:
    assert row.usd > 0
    assert row.unit in get_args(Unit)
    assert row.source
    assert row.as_of is None or row.as_of >= date(2026, 1, 1)


def priced(*types: str, **group: Any) -> Cost:
    workers = [{"name": f"w{place}", "instanceType": name, "count": 2, **group} for place, name in enumerate(types)]
    return estimate(config("slurm-gpu", workers=workers))


def test_a_type_without_a_price_is_in_no_sum_and_makes_the_whole_unknown() -> None:
    found = priced("ml.p7.48xlarge")
    assert (found.hourly_usd, found.monthly_usd, found.accelerator_hourly_usd, found.whole.guess) == (None,) * 4
    rest = priced("ml.p5.48xlarge").whole.least - 2 * 66.048
    assert found.words == f"at least ${rest:,.2f} an hour; price of 2 x ml.p7.48xlarge unknown"
    assert any("2 x ml.p7.48xlarge is unknown, and is in no sum" in warning for warning in found.warnings)
    assert found.as_json()["parts"]["w0 (2 x ml.p7.48xlarge)"] is None


def test_ec2s_price_is_an_estimate_with_its_source_and_no_price() -> None:
    found = priced("ml.g7e.48xlarge")
    assert found.hourly_usd is None
    assert found.whole.guess == pytest.approx(found.whole.least + 2 * 33.14432)
    assert "price of 2 x ml.g7e.48xlarge unknown; about $" in found.words
    assert "as an estimate, by EC2's on-demand rate" in found.words
    assert any("AWS Price List, AmazonEC2 us-east-1" in warning for warning in found.warnings)
    estimates = found.as_json()["estimates"]
    assert estimates == {"w0 (2 x ml.g7e.48xlarge)": {"hourly_usd": 2 * 33.14432, "basis": "EC2's on-demand rate"}}


def test_aws_own_rate_ends_what_is_unknown() -> None:
    chosen = config("slurm-gpu", workers=[{"name": "w", "instanceType": "ml.g7e.48xlarge", "count": 2}])
    found = estimate(chosen, {"ml.g7e.48xlarge": 40.0})
    assert found.parts["w (2 x ml.g7e.48xlarge)"] == known("2 x ml.g7e.48xlarge", 80.0)
    assert found.warnings == ()


def test_no_nodes_cost_nothing_whatever_their_price() -> None:
    assert priced("ml.p7.48xlarge", count=0).whole.known


def test_another_regions_prices_are_an_estimate() -> None:
    there = {"aws:region": "eu-central-1", "hyperpod:availabilityZoneId": "euc1-az2"}
    found = estimate(parse(project("dev").config | there))
    here = estimate(config("dev"))
    assert (found.hourly_usd, found.whole.least) == (None, 0)
    assert found.whole.guess == pytest.approx(here.whole.least)
    assert found.words.startswith("price of 6 parts in eu-central-1 unknown; about $11.37 an hour as an estimate")
    assert found.within(1000) is None


@pytest.mark.parametrize(
    ("types", "limit", "within"),
    [
        (("ml.p5.48xlarge",), 134, True),
        (("ml.p5.48xlarge",), 133, False),
        (("ml.g7e.48xlarge",), 1000, None),
        # What is known is more already.
        (("ml.g7e.48xlarge", "ml.p5.48xlarge"), 100, False),
        (("ml.p7.48xlarge",), 1e9, None),
    ],
)
def test_a_guard_says_yes_only_where_it_knows(types: tuple[str, ...], limit: float, within: bool | None) -> None:
    assert priced(*types).within(limit) is within


def test_what_differs_has_a_price_or_the_difference_has_none() -> None:
    one, two = (config("slurm-gpu", size=size) for size in ("small", "medium"))
    assert difference(estimate(one), estimate(two)) == pytest.approx(
        estimate(two).whole.least - estimate(one).whole.least
    )
    assert difference(priced("ml.g7e.48xlarge"), priced("ml.g7e.48xlarge", volumeGiB=700)) > 0  # type: ignore[operator]
    assert difference(priced("ml.g7e.48xlarge"), priced("ml.g7e.48xlarge", count=3)) is None


def test_of_many_unknown_parts_a_sentence_names_two() -> None:
    found = priced("ml.g7e.48xlarge", "ml.g7e.24xlarge", "ml.g7.48xlarge", "ml.p7.48xlarge")
    assert "price of 2 x ml.g7e.48xlarge, 2 x ml.g7e.24xlarge, 2 more unknown" in found.words


def test_an_hour_costs_the_rate_and_a_month_730_of_it() -> None:
    rates: dict[Unit, int | None] = {"hour": 1460, "month": 2, "GB-month": 2, "MBps-month": 2, "GB": None}
    for unit, hourly in rates.items():
        assert Price(item="one", usd=1460, unit=unit, source="").hourly_usd == hourly


@each(PRICES)
def test_only_usage_has_no_hourly_rate(row: Price) -> None:
    assert (row.hourly_usd is None) == (row.unit in ("GB", "10M samples", "billion samples"))


def test_every_price_is_that_of_something_a_stack_pays_for() -> None:
    stacks = [parse(project(one.stack, **one.settings).config) for one in GOLDEN.values()]
    with on_the_day():
        old = config("eks-gpu", kubernetesVersion=min(KUBERNETES_VERSIONS))
        held = {item for one in [*stacks, old] for of in quantities(one).values() for item in of}
    by_use = {item for one in stacks for of in usage(one).values() for item in of}
    # Of an instance class and of a file system's throughput a stack has one.
    choices = tuple(item for item in PRICES if item.startswith(("rds_t4g", "rds_m6g", "fsx_lustre_")))
    assert sorted(set(PRICES) - held - by_use - set(choices)) == []
    assert {price(item).unit for item in by_use} == {"GB", "GB-month", "10M samples", "billion samples", "month"}


# Amazon FSx for Lustre Pricing: backup storage by the GB-month. Amazon Managed Service for Prometheus Pricing: samples
# ingested, queried, stored and collected. Amazon CloudWatch Pricing: logs are paid for when taken and while kept.
USAGE: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "backups of file systems": ("slurm-gpu", {"fsx": {"backupDays": 7}}, ("fsx_backup",)),
    "managed Prometheus": (
        "eks-gpu",
        {"observability": {"prometheus": "create"}},
        ("amp_ingest", "amp_query", "amp_storage"),
    ),
    "CloudWatch Logs": ("slurm-gpu", {}, ("cloudwatch_logs_ingest", "cloudwatch_logs_storage")),
}


@pytest.mark.parametrize("part", USAGE)
def test_what_is_billed_by_use_is_named_with_every_charge(part: str) -> None:
    stack, settings, items = USAGE[part]
    assert usage(config(stack, **settings))[part] == items


def test_backups_that_nobody_asked_for_are_no_cost() -> None:
    assert "backups of file systems" not in usage(config("slurm-gpu"))


def test_rates_for_samples_are_written_out() -> None:
    (said,) = [n for n in estimate(config("eks-gpu", observability={"prometheus": "create"})).notes if "by use" in n]
    assert "managed Prometheus ($0.90 for 10 million samples and $0.10 for a billion samples" in said


def test_an_unknown_item_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownPrice, match="nat_gateway_hour"):
        price("nat_gateway")


def test_a_node_costs_hyperpods_rate_and_not_ec2s_where_both_are_known() -> None:
    # AWS Price List, AmazonSageMaker: HyperPod's rate for p5en is 1.2 of EC2's 63.296 (AmazonEC2), as for p5.
    chosen = config("slurm-gpu", workers=[{"name": "workers", "instanceType": "ml.p5en.48xlarge", "count": 2}])
    found = estimate(chosen)
    assert found.accelerator_hourly_usd == pytest.approx(2 * 1.2 * 63.296)
    assert not [note for note in found.notes if note.startswith("ml.p5en.48xlarge: ")]


def test_nodes_of_a_training_plan_are_said_to_be_paid_in_advance() -> None:
    plan = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine"
    group = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 2}
    found = estimate(config("slurm-gpu", workers=[{**group, "trainingPlanArn": plan}]))
    (of_plan,) = [warning for warning in found.warnings if "workers:" in warning]
    assert "paid in advance" in of_plan
    assert "price of the training plan of workers unknown" in found.words
    assert "by the on-demand rate" in found.words
    spot = config("slurm-gpu", workers=[{**group, "capacity": "spot"}])
    (of_spot,) = [n for n in estimate(spot).notes if "workers:" in n]
    assert "spot" in of_spot
    assert "plan" not in of_spot
    assert estimate(spot).words.startswith("at most $133")
    assert (estimate(spot).within(134), estimate(spot).within(100)) == (True, None)

"""``quotas`` says where a training plan is not for the nodes that name it, and nothing is deployed with it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operations.cluster import scale
from operations.commands.deploy import open_engine
from operations.deployment import preflight
from operations.failures import Exit, Failure
from operations.spending import plans, quotas
from operations.target import Target
from tests.operations.aws import StubbedAws, cluster, run, stack
from tests.rows import each

ARN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-week"
P5 = {"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 4, "trainingPlanArn": ARN}
TWO = [P5, P5 | {"name": "more"}]
PART = {"InstanceType": "ml.p5.48xlarge", "TotalInstanceCount": 4, "AvailabilityZoneId": "usw2-az2", "Status": "Active"}
GOOD = {"Status": "Scheduled", "TargetResources": ["hyperpod-cluster"], "ReservedCapacitySummaries": [PART]}
# DescribeTrainingPlan's answer, the groups, and what is said.
BAD: dict[str, tuple[tuple[dict[str, Any], list[dict[str, Any]]], str]] = {
    "over": (({"Status": "Expired"}, [P5]), "it is Expired"),
    "for jobs": (({"TargetResources": ["training-job"]}, [P5]), "it is for training-job, and not for hyperpod-cluster"),
    "of another type": (
        ({"ReservedCapacitySummaries": [PART | {"InstanceType": "ml.p5e.48xlarge"}]}, [P5]),
        "it has ml.p5e.48xlarge, and not ml.p5.48xlarge",
    ),
    "in another zone": (
        ({"ReservedCapacitySummaries": [PART | {"AvailabilityZoneId": "usw2-az3"}]}, [P5]),
        "it is in usw2-az3, and the stack in usw2-az2 (hyperpod:availabilityZoneId)",
    ),
    "too small for both groups": (({}, TWO), "it has 4 instances, and the groups 8"),
}


def with_plan(aws: StubbedAws, answer: dict[str, Any], groups: list[dict[str, Any]]) -> Target:
    """A stack whose groups name a plan, of which AWS says this."""
    parts = [PART, *answer.get("ReservedCapacitySummaries", [])][-1:]
    arns = {"ReservedCapacitySummaries": [one | {"ReservedCapacityArn": f"{ARN:x<60}"} for one in parts]}
    aws.answer(
        "sagemaker",
        "describe_training_plan",
        {"TrainingPlanArn": ARN, "TrainingPlanName": "p5-week", **GOOD, **answer, **arns},
        TrainingPlanName="p5-week",
    )
    return naming(aws, groups)


def naming(aws: StubbedAws, groups: list[dict[str, Any]]) -> Target:
    """A stack whose groups name a plan."""
    text = str(groups).replace("'", '"')
    return stack(aws, "slurm-gpu", f"hyperpod:workers={text}", "hyperpod:availabilityZoneId=usw2-az2")


def checked(target: Target) -> list[quotas.Check]:
    return [plans.check(target, arn, groups) for arn, groups in plans.users(target).items()]


@pytest.mark.parametrize(
    ("ends", "left"), [(timedelta(days=5, hours=1), "5 days"), (timedelta(hours=9), "8 hours"), (None, "")]
)
def test_a_week_before_a_plan_ends_its_nodes_end_is_announced(
    ends: timedelta | None, left: str, aws: StubbedAws
) -> None:
    """Developer Guide, "Reserve Flexible Training Plans": HyperPod ends the instances an hour before the plan."""
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    target = with_plan(aws, {} if ends is None else {"EndTime": now + ends}, [P5, P5 | {"name": "more"}])
    said = list(plans.endings(target, now))
    if not left:
        assert said == []
        return
    last = now + (ends or timedelta(0)) - timedelta(hours=1)
    assert said == [
        f"HyperPod ends the nodes of workers, more at {last:%Y-%m-%d %H:%M} UTC, in {left}: an hour later the "
        "training plan p5-week ends. `hyperpod capacity slurm-gpu` shows what extends it"
    ]


@pytest.mark.parametrize("ends", [timedelta(days=8), timedelta(minutes=30)])
def test_of_a_plan_that_goes_on_or_is_over_nothing_is_announced(ends: timedelta, aws: StubbedAws) -> None:
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert list(plans.endings(with_plan(aws, {"EndTime": now + ends}, [P5]), now)) == []


@each(BAD)
def test_a_plan_that_is_for_something_else_fails(case: Any, said: str, aws: StubbedAws) -> None:
    (found,) = checked(with_plan(aws, *case))
    assert (found.result, found.why) == ("FAIL", said)


def test_a_plan_for_these_nodes_passes_and_is_asked_once(aws: StubbedAws) -> None:
    (found,) = checked(with_plan(aws, {}, [P5 | {"count": 2}, P5 | {"name": "more", "count": 2}]))
    assert (found.result, found.needed, found.limit, found.why) == ("PASS", 4, 4.0, "")
    assert plans.users(stack(aws)) == {}
    aws.assert_all_asked()


def test_a_part_that_is_over_counts_for_nothing(aws: StubbedAws) -> None:
    over = PART | {"Status": "Expired", "TotalInstanceCount": 1}
    plan = GOOD | {"ReservedCapacitySummaries": [over, PART]}
    assert list(plans._misfits(stack(aws, "slurm-gpu", "hyperpod:availabilityZoneId=usw2-az2"), plan, [])) == []


@pytest.mark.parametrize(
    ("code", "result", "said"),
    [("ResourceNotFound", "FAIL", "there is no plan of that name"), ("AccessDenied", "UNKNOWN", "permission denied")],
)
def test_a_plan_that_is_not_there_fails_and_one_that_nobody_may_see_is_unknown(
    code: str, result: str, said: str, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    aws.refuse("sagemaker", "describe_training_plan", code)
    (found,) = checked(
        stack(
            aws,
            "slurm-gpu",
            f'hyperpod:workers=[{{"name": "w", "instanceType": "ml.p5.48xlarge", "trainingPlanArn": "{ARN}"}}]',
        )
    )
    assert found.result == result
    assert said in found.why
    monkeypatch.setattr(plans, "users", lambda _: {ARN: []})
    monkeypatch.setattr(plans, "check", lambda *_: found)
    monkeypatch.setattr(quotas, "check", lambda _: [])
    shown, out, _ = run("quotas", "dev")
    assert shown == (Exit.FAILED if result == "FAIL" else Exit.CANNOT_KNOW)
    assert f"{result} sagemaker: training plan p5-week" in " ".join(out.split())
    assert "Request" not in out


# Before a deployment


def deployed(aws: StubbedAws, *groups: dict[str, Any]) -> None:
    """The cluster that AWS describes; none without groups."""
    if groups:
        aws.answer("sagemaker", "describe_cluster", cluster() | {"InstanceGroups": list(groups)})
    else:
        aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")


def has_plan(count: int) -> dict[str, Any]:
    """A group of a cluster that has the plan (SageMaker API Reference, ClusterInstanceGroupDetails)."""
    return {"InstanceGroupName": "workers", "TargetCount": count, "TrainingPlanArn": ARN}


@each(BAD)
def test_nothing_is_deployed_with_a_plan_that_is_for_something_else(case: Any, said: str, aws: StubbedAws) -> None:
    target = with_plan(aws, *case)
    deployed(aws)
    with (
        pytest.raises(Failure, match=r"nothing was changed\. training plan p5-week") as refused,
        open_engine(target, False, None, create=True, install_cli=False),
    ):
        pass
    assert refused.value.message.endswith(said)
    assert (refused.value.code, refused.value.hint.count("hyperpod quotas slurm-gpu")) == (Exit.BAD_INPUT, 1)


def test_a_plan_that_ends_under_running_nodes_is_said_and_other_changes_go_on(
    aws: StubbedAws, capsys: pytest.CaptureFixture[str]
) -> None:
    target = with_plan(aws, {"Status": "Expired"}, [P5])
    deployed(aws, has_plan(4))
    preflight.require_plans(target)
    assert (
        "Warning: training plan p5-week (hyperpod:workers, trainingPlanArn): it is Expired" in capsys.readouterr().err
    )
    # More nodes than it has, or another group, do need it.
    for count, groups in ((2, [P5]), (4, TWO)):
        again = with_plan(aws, {"Status": "Expired"}, groups)
        deployed(aws, has_plan(count))
        with pytest.raises(Failure, match="it is Expired"):
            preflight.require_plans(again)


def test_a_plan_that_nobody_may_see_stops_no_deployment(aws: StubbedAws, capsys: pytest.CaptureFixture[str]) -> None:
    target = naming(aws, [P5])
    aws.refuse("sagemaker", "describe_training_plan", "AccessDenied")
    preflight.require_plans(target)
    assert "permission denied: DescribeTrainingPlan" in capsys.readouterr().err


def test_a_group_does_not_grow_beyond_its_plan(aws: StubbedAws) -> None:
    grown = scale.scaled(with_plan(aws, {}, [P5]), "workers", 5).target
    deployed(aws, has_plan(4))
    with pytest.raises(Failure, match="it has 4 instances, and the groups 5"):
        preflight.require_plans(grown)

"""In-place changes that AWS refuses are refused here, and those that it accepts are accepted."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from operations.engine.durations import update_duration
from operations.engine.state import State
from operations.project.loading import Project
from rehearsal.account import Account, Live, Refused
from rehearsal.account.updates import (
    check_control_plane,
    check_database,
    check_groups,
    check_lustre,
    check_openzfs,
    check_openzfs_update,
)
from rehearsal.engines.deployment import destroy, refresh, up
from rehearsal.engines.provider import EmbeddedProvider
from tests.rehearsal.test_provider import LOGS, Aborted, account, ask, aws, values


def live(inputs: dict[str, Any]) -> Live:
    return Live("type", "name", "id", inputs, {})


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [(1200, 2400, ""), (2400, 4800, ""), (4800, 4800, ""), (4800, 2400, "only grow")],
)
def test_a_file_system_only_grows(before: int, after: int, reason: str) -> None:
    system = live({"storageCapacity": before})
    if not reason:
        check_lustre(system, {"storageCapacity": after}, now=0)
        return
    with pytest.raises(Refused, match=reason):
        check_lustre(system, {"storageCapacity": after}, now=0)


def test_a_file_system_grows_again_after_six_hours() -> None:
    system = live({"storageCapacity": 1200})
    check_lustre(system, {"storageCapacity": 2400}, now=100)
    system.inputs["storageCapacity"] = 2400
    check_lustre(system, {"storageCapacity": 2400}, now=101)
    with pytest.raises(Refused, match="6 hours after the last increase"):
        check_lustre(system, {"storageCapacity": 4800}, now=21_699)
    check_lustre(system, {"storageCapacity": 4800}, now=21_700)


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [("storageCapacity", 900), ("perUnitStorageThroughput", 900), ("automaticBackupRetentionDays", 3), ("tags", 3)],
)
def test_only_growing_and_throughput_keep_a_file_system_busy(changed: str, seconds: float) -> None:
    kind = "aws:fsx/lustreFileSystem:LustreFileSystem"
    assert update_duration(kind, {changed: 1}, {changed: 2}) == seconds


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [(64, 71, ""), (64, 64, ""), (64, 70, "10 percent"), (128, 64, "only grow"), (64, 524289, "64 to 524288")],
)
def test_a_file_system_on_openzfs_grows_by_a_tenth_at_least(before: int, after: int, refused: str) -> None:
    kind = {"deploymentType": "SINGLE_AZ_1", "throughputCapacity": 64}
    system = live({"storageCapacity": before, **kind})
    with pytest.raises(Refused, match=refused) if refused else nullcontext():
        check_openzfs_update(system, {"storageCapacity": after, **kind}, 0.0)


def test_openzfs_has_its_own_throughputs_and_a_change_of_one_takes_time() -> None:
    with pytest.raises(Refused, match="160 MB/s is not a throughput capacity of SINGLE_AZ_1"):
        check_openzfs({"storageCapacity": 64, "deploymentType": "SINGLE_AZ_1", "throughputCapacity": 160})
    kind = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
    assert update_duration(kind, {"throughputCapacity": 64}, {"throughputCapacity": 128}) == 600


@pytest.mark.parametrize(
    ("before", "after", "comes_to"),
    [
        (20, 20, 20),
        (100, 110, 110),
        (20, 21, 22),
        (35, 36, 39),
        (400, 500, 500),
        (399, 20, "399 GiB cannot become 20"),
        (20, 400, "Invalid iops value .* gp3: 3000"),
    ],
)
def test_a_database_grows_by_a_tenth_at_least(before: int, after: int, comes_to: int | str) -> None:
    database = live({"allocatedStorage": before})
    with pytest.raises(Refused, match=comes_to) if isinstance(comes_to, str) else nullcontext():
        assert check_database(database, {"allocatedStorage": after}) == comes_to


def test_a_database_that_has_grown_more_than_was_asked_for_is_not_made_smaller() -> None:
    database = live({"allocatedStorage": 20})
    assert check_database(database, {"allocatedStorage": 21}) == 22
    database.inputs["allocatedStorage"] = 21
    with pytest.raises(Refused, match="22 GiB cannot become 21"):
        check_database(database, {"allocatedStorage": 21})
    assert check_database(database, {"allocatedStorage": 400, "iops": 12000}) == 400


def test_kubernetes_is_upgraded_by_one_version_and_rolled_back_only_by_that_one() -> None:
    cluster = live({"version": "1.33"})
    for version in ("1.35", "1.32"):
        with pytest.raises(Refused, match=f"Unsupported Kubernetes minor version update from 1.33 to {version}"):
            check_control_plane(cluster, {"version": version})
    check_control_plane(cluster, {"version": "1.34"})
    cluster.inputs["version"] = "1.34"
    check_control_plane(cluster, {"version": "1.33"})
    cluster.inputs["version"] = "1.33"
    with pytest.raises(Refused, match=r"from 1\.33 to 1\.32"):
        check_control_plane(cluster, {"version": "1.32"})


def test_switching_to_access_entries_only_cannot_be_undone() -> None:
    def mode(text: str) -> dict[str, Any]:
        return {"version": "1.34", "accessConfig": {"authenticationMode": text}}

    check_control_plane(live(mode("API_AND_CONFIG_MAP")), mode("API"))
    with pytest.raises(Refused, match="from API to API_AND_CONFIG_MAP"):
        check_control_plane(live(mode("API")), mode("API_AND_CONFIG_MAP"))


def groups(*named: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "instanceGroups": [
            {"instanceGroupName": name, "instanceType": kind, "slurmConfig": {"nodeType": role}}
            for name, kind, role in named
        ]
    }


CONTROLLER, WORKERS = ("controller", "ml.m5.2xlarge", "Controller"), ("workers", "ml.p5.48xlarge", "Compute")


def test_groups_can_be_added_and_removed_but_keep_their_type_and_the_controller_stays() -> None:
    cluster = live(groups(CONTROLLER, WORKERS))
    check_groups(cluster, groups(CONTROLLER, ("others", "ml.g5.8xlarge", "Compute")))
    with pytest.raises(Refused, match=r"workers must match .*, ml\.p5\.48xlarge, and ml\.g5\.8xlarge was given"):
        check_groups(cluster, groups(CONTROLLER, ("workers", "ml.g5.8xlarge", "Compute")))
    for kept, value in (("threadsPerCore", 2), ("executionRole", "arn:other"), ("capacityRequirements", {"spot": {}})):
        wanted = groups(CONTROLLER, WORKERS)
        wanted["instanceGroups"][1][kept] = value
        with pytest.raises(Refused, match=f"{kept} of instance group workers cannot be changed"):
            check_groups(cluster, wanted)
    with pytest.raises(Refused, match="is the Slurm controller"):
        check_groups(cluster, groups(WORKERS))
    with pytest.raises(Refused, match="at least one"):
        check_groups(cluster, groups())


__all__ = ["account", "aws"]
LOG_GROUP = "import pulumi_aws as aws\naws.cloudwatch.LogGroup('logs', name='kept', retention_in_days={days})\n"


def test_a_refused_update_leaves_what_was_wanted_in_the_engines_state_until_a_refresh(aws: EmbeddedProvider) -> None:
    inputs = ask(aws, "Check", LOGS, "refused", news={"retentionInDays": 30}).inputs
    created = ask(aws, "Create", LOGS, "refused", properties=inputs)
    news = {**values(inputs), "retentionInDays": 31}
    one = {"id": created.id, "old_inputs": inputs}
    with pytest.raises(Aborted, match="31 days is not a retention") as aborted:
        ask(aws, "Update", LOGS, olds=created.properties, news=news, **one)
    (detail,) = aborted.value.status.details
    failed = provider_pb2.ErrorResourceInitFailed()
    assert detail.Unpack(failed)
    assert (failed.id, values(failed.properties)["retentionInDays"]) == (created.id, 31)
    assert values(failed.properties)["arn"] == values(created.properties)["arn"]
    # The same values again are no change and succeed without a call to AWS; the old values are a change.
    assert list(ask(aws, "Diff", LOGS, news=news, **one).diffs) == []
    again = ask(aws, "Update", LOGS, olds=failed.properties, news=news, **one)
    assert values(again.properties)["retentionInDays"] == 31
    assert list(ask(aws, "Diff", LOGS, news=inputs, **one).diffs) == ["retentionInDays"]
    read = ask(aws, "Read", LOGS, id=created.id, inputs=inputs, properties=failed.properties)
    assert values(read.properties)["retentionInDays"] == 30
    assert list(ask(aws, "Diff", LOGS, news=inputs, **one).diffs) == []


def test_the_embedded_engine_keeps_desired_values_as_actual_ones_until_a_refresh(
    account: Account, tmp_path: Path
) -> None:
    main = tmp_path / "__main__.py"
    project = Project(tmp_path, "small", "test", main, {"aws:region": "us-west-2"})

    state: State = {}

    def deploy(days: int, preview: bool = False) -> list[str]:
        nonlocal state
        main.write_text(LOG_GROUP.format(days=days))
        deployment = up(project, account, old=state, preview=preview)
        state = state if preview else deployment.state
        return [deployment.failure] if deployment.failure else [str(one) for one in deployment.changes.values()]

    def days() -> list[int]:
        groups = account.client("logs").describe_log_groups(logGroupNamePrefix="kept")["logGroups"]
        return [group["retentionInDays"] for group in groups]

    assert deploy(30) == ["create"]
    assert "31 days is not a retention" in deploy(31)[0]
    # The same values again succeed as an update without changes, which hides the failure.
    assert deploy(31, preview=True) == ["update"]
    assert deploy(30, preview=True) == ["update"]
    assert deploy(31) == ["update"]
    assert deploy(31) == []
    assert days() == [30]
    assert list(refresh(state, account).values()) == ["update"]
    assert deploy(30, preview=True) == []
    assert destroy(state, account) == []

"""With task governance each team has a compute quota, by which it lends and borrows."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pulumi
import pytest

from components.common.context import Context
from components.kubernetes.teams.compute_quotas import ComputeQuotas, ComputeQuotasArgs
from operations.engine.state import ResourceState
from rehearsal.account import Refused
from rehearsal.account.compute_quotas import TOKEN
from tests.components.mocks import made
from tests.golden.stacks import account_of, state_of
from tests.support import config, of_type


def quotas() -> dict[str, ResourceState]:
    return {one.inputs["computeQuotaTarget"]["teamName"]: one for one in of_type(state_of("eks-teams"), TOKEN)}


def test_each_team_has_its_devices_of_every_type_and_none_is_lost_to_a_fraction() -> None:
    found = {
        team: {
            row["instanceType"]: row["accelerators"]
            for row in one.inputs["computeQuotaConfig"]["computeQuotaResources"]
        }
        for team, one in quotas().items()
    }
    # 24 of the 80 are promised to vision, those among them that follow demand: 16.8 of 56, 7.2 of 24.
    assert found == {
        "vision": {"ml.p5.48xlarge": 16, "ml.p4d.24xlarge": 7},
        "speech": {"ml.p5.48xlarge": 40, "ml.p4d.24xlarge": 17},
    }


@pytest.mark.parametrize(("region", "named"), [("us-west-2", True), ("af-south-1", False)])
def test_a_region_that_the_type_may_not_have_is_told(region: str, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    warned = list[str]()
    monkeypatch.setattr(pulumi.log, "warn", lambda message, *_: warned.append(message))
    chosen = config("eks-gpu")

    def quotas(context: Context) -> ComputeQuotas:
        home = pulumi.ComponentResource("hyperpod:test:Home", "home")
        args = ComputeQuotasArgs(
            settings=chosen.settings,
            region=region,
            groups=chosen.training_groups,
            shares={"training": 1.0},
            cluster_arn="arn",
            namespaces={"training": home},
            tags=context.tags,
        )
        return ComputeQuotas("quotas", args)

    assert "quotas-training" in made(chosen, quotas)
    assert [f"{region} is none of them" in said for said in warned] == ([] if named else [True])


def other_team(inputs: dict[str, Any]) -> None:
    inputs["computeQuotaTarget"]["teamName"] = "astronomy"


def other_name(inputs: dict[str, Any]) -> None:
    inputs["name"] = "another"


def too_heavy(inputs: dict[str, Any]) -> None:
    other_team(inputs)
    other_name(inputs)
    inputs["computeQuotaTarget"]["fairShareWeight"] = 101


def other_type(inputs: dict[str, Any]) -> None:
    other_team(inputs)
    other_name(inputs)
    inputs["computeQuotaConfig"]["computeQuotaResources"][0]["instanceType"] = "ml.g5.xlarge"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_team, "eks-gpu-vision is there already"),
        (other_name, "eks-gpu-vision is there already"),
        (too_heavy, "101 is greater than the maximum of 100"),
        (other_type, "no instance group of ml.g5.xlarge"),
    ],
)
def test_the_embedded_account_refuses_what_sagemaker_refuses(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    with account_of("eks-teams") as account:
        inputs = deepcopy(quotas()["vision"].inputs)
        change(inputs)
        with pytest.raises(Refused, match=words):
            account.create(TOKEN, "another", inputs, at=1e6, ready_at=1e6)


def test_the_embedded_account_keeps_a_cluster_with_quotas_and_makes_none_without_the_add_on() -> None:
    with account_of("eks-teams") as account:
        (cluster,) = account.find("aws-native:sagemaker:Cluster")
        with pytest.raises(Refused, match="still used by"):
            account.delete(cluster.type, cluster.id)
        for quota in list(account.find(TOKEN)):
            account.delete(TOKEN, quota.id)
        (addon,) = account.find("aws:eks/addon:Addon", addonName="amazon-sagemaker-hyperpod-taskgovernance")
        account.delete(addon.type, addon.id)
        with pytest.raises(Refused, match="does not have the add-on"):
            account.create(TOKEN, "another", quotas()["vision"].inputs, at=1e6, ready_at=1e6)

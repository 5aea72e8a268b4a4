"""Impossible changes to a deployed stack are refused before anything happens, with a way that works."""

import pytest

from operations.failures.advice import next_step
from rehearsal.account import Account
from rehearsal.account.faults import NO_CAPACITY
from rehearsal.engines.deployment import destroy, up
from rehearsal.engines.program import ProgramError
from tests.support import project


@pytest.mark.slow
def test_another_zone_or_instance_type_is_refused_and_the_advice_for_both_works() -> None:
    here, there = project(availabilityZoneId="usw2-az2"), project(availabilityZoneId="usw2-az1")
    with Account("us-west-2") as account:
        before = up(here, account)
        assert before.failure == ""
        for preview in (True, False):
            with pytest.raises(ProgramError, match=r"this stack is in usw2-az2.*or go there as docs/data.md says"):
                up(there, account, old=before.state, preview=preview)
        group = {"name": "workers", "instanceType": "ml.g5.8xlarge", "count": 2}
        another = up(project(availabilityZoneId="usw2-az2", workers=[group]), account, old=before.state)
        assert "hyperpod-cluster (aws-native:sagemaker:Cluster): update failed" in another.failure
        assert "another name" in next_step(another.failure, "dev")
        renamed = [{**group, "name": "smaller"}]
        after = up(project(availabilityZoneId="usw2-az2", workers=renamed), account, old=another.state)
        assert after.failure == ""
        assert "replace" not in after.changes.values()
        assert destroy(after.state, account) == []
        moved = up(there, account)
        assert moved.failure == ""
        assert destroy(moved.state, account) == []
        assert account.leftovers() == []


def test_without_capacity_the_advice_is_to_destroy_the_stack_before_changing_the_zone() -> None:
    advice = next_step(NO_CAPACITY, "dev")
    assert advice.index("hyperpod destroy dev") < advice.index("availabilityZoneId")

"""HyperPod's events reach the log, whatever shape they have."""

import json
from typing import Any

import pytest
from moto.events.models import EventPattern

from components.health.validation import Validation, ValidationArgs, event_pattern
from tests.components.mocks import made
from tests.support import config


def kept(kind: str, detail: dict[str, Any]) -> bool:
    """Whether EventBridge, as moto reads patterns, keeps such an event for the cluster ``training``."""
    pattern = event_pattern("training")
    event: Any = {"source": "aws.sagemaker", "detail-type": kind, "detail": detail}
    return bool(EventPattern(pattern, json.loads(pattern)).matches_event(event))


# Amazon SageMaker Developer Guide, "Events that Amazon SageMaker AI sends to EventBridge": the first two kinds have the
# name in the detail, the last has it inside.
SHAPES = [
    ("SageMaker HyperPod Cluster State Change", False),
    ("SageMaker HyperPod Cluster Node Health Event", False),
    ("SageMaker HyperPod Cluster Event", True),
]


@pytest.mark.parametrize(("kind", "nested"), SHAPES)
def test_every_kind_of_event_of_this_cluster_is_recorded_and_none_of_others(kind: str, nested: bool) -> None:
    for cluster in ("training", "training-2"):
        detail: dict[str, Any] = {"ClusterName": cluster, "InstanceId": "i-0391f86fa0fe0d465"}
        assert kept(kind, {"EventDetails": detail} if nested else detail) is (cluster == "training")


def test_events_of_other_kinds_are_not_kept() -> None:
    assert not kept("SageMaker Training Job State Change", {"ClusterName": "training"})


def test_a_cluster_name_that_begins_with_aws_names_no_document_that_ssm_reserves() -> None:
    found = made(
        config("dev", clusterName="aws-dev"),
        lambda context: Validation("checks", ValidationArgs(context=context, benchmarks=True)),
    )
    names = [found[f"checks-{script}"]["name"] for script in ("validate", "benchmark")]
    assert not [name for name in names if name.startswith(("aws", "amazon", "amzn"))]

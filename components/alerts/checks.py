"""Checks of the keys of alerts."""

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..schema.problems import Problem
from .keys import Alerts


def alert_problems(chosen: Alerts, region: Region | None) -> Iterator[Problem]:
    """Yield every problem of the alert keys."""
    if chosen.email and chosen.topic_arn:
        yield Problem(
            key="hyperpod:alerts.email",
            what="alerts go to the topic that is given",
            fix="subscribe the address to that topic, or leave one of the two out",
        )
    if (arn := chosen.topic_arn) and region and arn.split(":")[1:4:2] != [region.partition, region.name]:
        yield Problem(
            key="hyperpod:alerts.topicArn",
            what=f"the topic is in {arn.split(':')[3]}",
            fix=f"a topic in {region.name}, or email",
        )

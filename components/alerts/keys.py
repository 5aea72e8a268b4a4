"""The keys of alerts: who is told."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ..schema.fields import IN_PLACE, Model, form

# Amazon SNS API Reference, CreateTopic, Name. Prometheus' alert manager and alarms do not publish to FIFO topics.
TopicArn: TypeAlias = Annotated[
    str,
    form(
        "arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}",
        "is not the ARN of a standard topic",
        "arn:aws:sns:REGION:ACCOUNT:NAME",
    ),
]


EmailAddress: TypeAlias = Annotated[
    str, form(r"[^@\s]+@[^@\s]+\.[^@\s.]+", "is not an e-mail address", "one address, like ops@example.com")
]


class Alerts(Model):
    """Where notifications go: an address or a topic."""

    email: Annotated[EmailAddress | None, IN_PLACE] = None
    """E-mail address that is told. It has to confirm the subscription that AWS sends it."""
    topic_arn: Annotated[TopicArn | None, IN_PLACE] = None
    """SNS topic of this account and region that is told, in place of `email`. docs/metrics.md has what its policy
    needs."""

    @property
    def wanted(self) -> bool:
        """Whether anybody is told."""
        return bool(self.email or self.topic_arn)

"""The keys of alerts: the address or topic that receives messages."""

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
    """The address or topic that receives notifications."""

    email: Annotated[EmailAddress | None, IN_PLACE] = None
    """E-mail address that gets the messages. Its owner must confirm the subscription that AWS sends."""
    topic_arn: Annotated[TopicArn | None, IN_PLACE] = None
    """SNS topic of this account and region that gets the messages, in place of `email`. docs/metrics.md has the policy
    that it needs."""

    @property
    def wanted(self) -> bool:
        """Whether the stack has an address or a topic for alerts."""
        return bool(self.email or self.topic_arn)

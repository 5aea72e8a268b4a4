"""The alert manager of a Prometheus workspace: its messages to the topic, and how often it repeats them."""

from typing import Any

from ..common.documents import dump

# The label of an alert that says that its node is gone (components/alerts): while it fires, that node's warnings say
# nothing new.
LOST_NODE = "NodeLost"


def definition(topic: str, region: str) -> str:
    """Return the file that the service accepts: alert manager's configuration as one text under one key.

    Amazon Managed Service for Prometheus User Guide, "Setting up your alert receiver": SNS or PagerDuty.
    """
    return dump({"alertmanager_config": dump(configuration(topic, region))})


def configuration(topic: str, region: str) -> dict[str, Any]:
    """Return alert manager's own configuration: a message for each alert and node, repeated twice a day."""
    return {
        "route": {
            "receiver": "topic",
            "group_by": ["cluster", "alertname", "node"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
        },
        "inhibit_rules": [
            {
                "source_matchers": [f'alertname="{LOST_NODE}"'],
                "target_matchers": ['severity="warning"'],
                "equal": ["cluster", "node"],
            }
        ],
        "receivers": [
            {
                "name": "topic",
                "sns_configs": [{"topic_arn": topic, "sigv4": {"region": region}, "send_resolved": True}],
            }
        ],
    }

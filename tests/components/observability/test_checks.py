"""Metrics that nothing could collect or show are refused."""

from __future__ import annotations

import pytest

from tests.components.config.refusals import Cases, check, problems
from tests.support import METRICS

KEY = "hyperpod:observability"
HERE = "arn:aws:aps:us-west-2:123456789012:workspace/ws-01234567-89ab-cdef-0123-456789abcdef"
TOPIC = "arn:aws:sns:us-west-2:123456789012:pages"
BAD: Cases = {
    "the boolean that it was": (
        {"observability": True},
        KEY,
        "{prometheus: create, grafana: create} where it was true",
    ),
    "workspace by its id": ({"observability": {"prometheus": "ws-0123"}}, f"{KEY}.prometheus", "workspace/ws-..."),
    "workspace of another region": (
        {"observability": {"prometheus": HERE.replace("us-west-2", "us-east-1")}},
        f"{KEY}.prometheus",
        "the workspace is in us-east-1; a workspace in us-west-2, or create",
    ),
    "workspace of another partition": (
        {"observability": {"prometheus": HERE.replace("arn:aws:", "arn:aws-cn:")}},
        f"{KEY}.prometheus",
        "a workspace in us-west-2",
    ),
    "Grafana by its address": (
        {"observability": {"prometheus": "create", "grafana": "https://g-0123456789.example.com"}},
        f"{KEY}.grafana",
        "none, create, or g-0123456789",
    ),
    "Grafana without Prometheus": ({"observability": {"grafana": "create"}}, f"{KEY}.grafana", "no Prometheus"),
    "Grafana where there is none": (
        {"region": "us-west-1", "availabilityZoneId": "usw1-az1", "observability": METRICS},
        f"{KEY}.grafana",
        "not in us-west-1; leave grafana out",
    ),
    "sign-in for an existing Grafana": (
        {"observability": {"prometheus": "create", "grafana": "g-0123456789", "grafanaAuthentication": ["SAML"]}},
        f"{KEY}.grafanaAuthentication",
        "creates no Grafana",
    ),
    "no sign-in": (
        {"observability": {"prometheus": "create", "grafana": "create", "grafanaAuthentication": []}},
        f"{KEY}.grafanaAuthentication",
        "nobody could sign in",
    ),
    "one sign-in twice": (
        {"observability": {"prometheus": "create", "grafana": "create", "grafanaAuthentication": ["SAML", "SAML"]}},
        f"{KEY}.grafanaAuthentication",
        "[AWS_SSO], [SAML], or both",
    ),
    "logs of pods with Slurm": (
        {"observability": {"prometheus": "create", "logs": True}},
        f"{KEY}.logs",
        "orchestrator slurm",
    ),
    "logs without Prometheus": (
        {"orchestrator": "eks", "observability": {"logs": True}},
        f"{KEY}.logs",
        "needs a Prometheus workspace",
    ),
    "a collector of pods with Slurm": (
        {"observability": {"prometheus": "create", "scraper": "training"}},
        f"{KEY}.scraper",
        "nodes of Slurm send by themselves; leave it out",
    ),
    "a collector without a workspace": (
        {"orchestrator": "eks", "observability": {"scraper": "training"}},
        f"{KEY}.scraper",
        "there is no Prometheus workspace to write to",
    ),
    "a collector for a workspace with a customer key": (
        {
            "orchestrator": "eks",
            "observability": {"prometheus": "create", "scraper": "training"},
            "security": {"kmsKey": "create"},
        },
        f"{KEY}.scraper",
        "encrypted with a customer key (security.kmsKey)",
    ),
    "a collector of something else": (
        {"orchestrator": "eks", "observability": {"prometheus": "create", "scraper": "all"}},
        f"{KEY}.scraper",
        "one of 'none', 'training' or 'everything'",
    ),
    "logs without the add-on": (
        {"orchestrator": "eks", "observability": {"prometheus": "create", "scraper": "everything", "logs": True}},
        f"{KEY}.logs",
        "in whose place the collector is",
    ),
    "detail without the add-on": (
        {
            "orchestrator": "eks",
            "observability": {"prometheus": "create", "scraper": "everything", "detail": "advanced"},
        },
        f"{KEY}.detail",
        "in whose place the collector is",
    ),
    "collectors without a connection": (
        {
            "orchestrator": "eks",
            "observability": {"prometheus": "create"},
            "charts": {"strictNetworkPolicies": True},
        },
        "hyperpod:charts.strictNetworkPolicies",
        "the pods that collect metrics",
    ),
    "two addresses": (
        {"alerts": {"email": "ops@example.com", "topicArn": TOPIC}},
        "hyperpod:alerts.email",
        "subscribe the address to that topic",
    ),
    "no address": ({"alerts": {"email": "ops at example.com"}}, "hyperpod:alerts.email", "ops@example.com"),
    "FIFO topic": ({"alerts": {"topicArn": f"{TOPIC}.fifo"}}, "hyperpod:alerts.topicArn", "a standard topic"),
    "topic of another region": (
        {"alerts": {"topicArn": TOPIC.replace("us-west-2", "us-east-1")}},
        "hyperpod:alerts.topicArn",
        "the topic is in us-east-1; a topic in us-west-2, or email",
    ),
    "detail of nothing": ({"observability": {"detail": "advanced"}}, f"{KEY}.detail", "no metrics are collected"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_it_is_refused_with_key_reason_and_remedy(case: tuple[dict[str, object], str, str]) -> None:
    check(case)


def test_all_problems_of_metrics_are_told_at_once() -> None:
    found = problems(observability={"grafana": "create", "grafanaAuthentication": [], "detail": "advanced"})
    assert set(found) == {f"{KEY}.{key}" for key in ("grafana", "grafanaAuthentication", "detail")}

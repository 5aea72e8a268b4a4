"""Metrics that nothing could collect or show are refused."""

from tests.components.config.refusals import Cases, problems
from tests.support import METRICS

KEY = "hyperpod:observability"
HERE = "arn:aws:aps:us-west-2:123456789012:workspace/ws-01234567-89ab-cdef-0123-456789abcdef"
TOPIC = "arn:aws:sns:us-west-2:123456789012:pages"
BAD: Cases = {
    "the boolean that it was": {"observability": True},
    "workspace by its id": {"observability": {"prometheus": "ws-0123"}},
    "workspace of another region": {"observability": {"prometheus": HERE.replace("us-west-2", "us-east-1")}},
    "workspace of another partition": {"observability": {"prometheus": HERE.replace("arn:aws:", "arn:aws-cn:")}},
    "Grafana by its address": {
        "observability": {"prometheus": "create", "grafana": "https://g-0123456789.example.com"}
    },
    "Grafana without Prometheus": {"observability": {"grafana": "create"}},
    "Grafana where there is none": {"region": "us-west-1", "availabilityZoneId": "usw1-az1", "observability": METRICS},
    "sign-in for an existing Grafana": {
        "observability": {"prometheus": "create", "grafana": "g-0123456789", "grafanaAuthentication": ["SAML"]}
    },
    "no sign-in": {"observability": {"prometheus": "create", "grafana": "create", "grafanaAuthentication": []}},
    "one sign-in twice": {
        "observability": {"prometheus": "create", "grafana": "create", "grafanaAuthentication": ["SAML", "SAML"]}
    },
    "logs of pods with Slurm": {"observability": {"prometheus": "create", "logs": True}},
    "logs without Prometheus": {"orchestrator": "eks", "observability": {"logs": True}},
    "a collector of pods with Slurm": {"observability": {"prometheus": "create", "scraper": "training"}},
    "a collector without a workspace": {"orchestrator": "eks", "observability": {"scraper": "training"}},
    "a collector for a workspace with a customer key": {
        "orchestrator": "eks",
        "observability": {"prometheus": "create", "scraper": "training"},
        "security": {"kmsKey": "create"},
    },
    "a collector of something else": {
        "orchestrator": "eks",
        "observability": {"prometheus": "create", "scraper": "all"},
    },
    "logs without the add-on": {
        "orchestrator": "eks",
        "observability": {"prometheus": "create", "scraper": "everything", "logs": True},
    },
    "detail without the add-on": {
        "orchestrator": "eks",
        "observability": {"prometheus": "create", "scraper": "everything", "detail": "advanced"},
    },
    "collectors without a connection": {
        "orchestrator": "eks",
        "observability": {"prometheus": "create"},
        "charts": {"strictNetworkPolicies": True},
    },
    "two addresses": {"alerts": {"email": "ops@example.com", "topicArn": TOPIC}},
    "no address": {"alerts": {"email": "ops at example.com"}},
    "FIFO topic": {"alerts": {"topicArn": f"{TOPIC}.fifo"}},
    "topic of another region": {"alerts": {"topicArn": TOPIC.replace("us-west-2", "us-east-1")}},
    "MLflow where there is none": {
        "region": "eu-south-2",
        "availabilityZoneId": "eus2-az1",
        "observability": {"mlflow": True},
    },
    "MLflow with a customer key, out of reach": {
        "network": {"egress": "vpc-only"},
        "security": {"kmsKey": "create"},
        "observability": {"mlflow": True},
    },
    "detail of nothing": {"observability": {"detail": "advanced"}},
}


def test_all_problems_of_metrics_are_told_at_once() -> None:
    found = problems(observability={"grafana": "create", "grafanaAuthentication": [], "detail": "advanced"})
    assert set(found) == {f"{KEY}.{key}" for key in ("grafana", "grafanaAuthentication", "detail")}

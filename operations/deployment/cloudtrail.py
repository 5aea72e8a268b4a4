"""Refused calls that concern a stack, from CloudTrail."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..failures import NO_CREDENTIALS, cannot_know, reason
from ..target import Target
from .tagged import arns

# LookupEvents answers two pages of 50 events a second, and keeps 90 days (AWS CloudTrail API Reference).
MOST_EVENTS = 1000
_SERVICES = (
    "sagemaker", "ec2", "fsx", "eks", "iam", "s3", "ssm", "logs", "events", "aps", "grafana", "kms", "ecr",
    "sns", "monitoring",
)  # fmt: skip
_SOURCES = frozenset(f"{name}.amazonaws.com" for name in _SERVICES)
# Errors of calls that only check whether something exists.
_HARMLESS = frozenset(
    {"NoSuchEntityException", "NoSuchBucket", "NoSuchTagSet", "ResourceNotFoundException", "DryRunOperation"}
)
# IAM is global within a partition, and its events can be looked up in this region only (AWS CloudTrail User Guide,
# "Global service events": IAM and STS in LookupEvents since 22 November 2021).
_IAM_REGIONS = {"aws": "us-east-1", "aws-us-gov": "us-gov-west-1", "aws-cn": "cn-north-1"}
_ID = re.compile(r"\b[a-z]+-[0-9a-f]{8,17}\b")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """One call that AWS refused. ``message`` begins with AWS's code."""

    time: datetime
    call: str
    message: str


def refused(target: Target, start: datetime) -> Iterator[Refused]:
    """Refused calls since ``start`` that name the cluster, or a resource of the stack by its id, newest first.

    If a source cannot be queried, a Failure at the end says so; what was found before still counts. Without credentials
    none can, and the error says so.
    """
    ids, unseen = _ids(target)
    home = target.aws.region
    iam = _IAM_REGIONS[target.config.region.partition]
    questions = [(home, "ReadOnly", "false")]
    if iam != home:
        questions.append((iam, "EventSource", "iam.amazonaws.com"))
    for region, key, value in questions:
        try:
            for count, event in enumerate(_events(target, region, key, value, start)):
                if count == MOST_EVENTS:
                    unseen.append(f"only the newest {MOST_EVENTS} events of {region} were read: use a smaller --hours")
                    break
                if found := _refusal(target, event, ids):
                    yield found
        except NO_CREDENTIALS:
            raise
        except (ClientError, BotoCoreError) as error:
            unseen.append(f"{reason(error)} in {region}")
    if unseen:
        raise cannot_know("; ".join(unseen))


def _events(target: Target, region: str, key: str, value: str, start: datetime) -> Iterator[dict[str, Any]]:
    attributes = [{"AttributeKey": key, "AttributeValue": value}]
    return target.aws.pages(
        "cloudtrail", "lookup_events", "Events", region=region, LookupAttributes=attributes, StartTime=start
    )


def _ids(target: Target) -> tuple[set[str], list[str]]:
    """EC2 ids of the tagged resources, because delete calls name nothing else; and why they are unknown."""
    try:
        return {one for arn in arns(target) for one in _ID.findall(arn)}, []
    except NO_CREDENTIALS:
        raise
    except (ClientError, BotoCoreError) as error:
        return set(), [f"calls that name resources only by id are missing: {reason(error)}"]


def _refusal(target: Target, event: dict[str, Any], ids: set[str]) -> Refused | None:
    if event.get("EventSource") not in _SOURCES:
        return None
    text = str(event["CloudTrailEvent"])
    detail = json.loads(text)
    # EC2's codes begin with Client or Server (Amazon EC2 API Reference, error codes for the Query API).
    code = (detail.get("errorCode") or "").removeprefix("Client.").removeprefix("Server.")
    ours = target.cluster_name in text or not ids.isdisjoint(_ID.findall(text))
    if not code or code in _HARMLESS or not ours:
        return None
    call = f"{event['EventSource'].split('.')[0]} {event['EventName']}"
    return Refused(time=event["EventTime"], call=call, message=f"{code}: {detail.get('errorMessage', '')}")

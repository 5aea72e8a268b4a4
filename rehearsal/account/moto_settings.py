"""Settings that skip what moto sets up for every account and nobody needs, so that an account starts at once."""

from __future__ import annotations

import json
import os
from functools import cache

os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
# Nothing here starts an instance, and five thousand images take half a second for each account.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from botocore import session
from moto.core import models as core
from moto.core import responses
from moto.core.base_backend import AccountSpecificBackend
from moto.iam import models as iam

# Of AWS's 1,300 managed policies, those of the services in play.
_MANAGED = (
    "AmazonSageMaker",
    "AmazonEKS",
    "AmazonEBSCSI",
    "AmazonFSx",
    "AmazonSSM",
    "AmazonPrometheus",
    "AmazonGrafana",
)
# Their backends hold what has to be closed; every other one is dropped anyway once it has been made anew.
_CLOSED = ("s3", "batch")

_parse_policies, _reset = iam.IAMBackend._init_aws_policies, AccountSpecificBackend.reset
_parsed: dict[tuple[str, str], list[iam.ManagedPolicy]] = {}


def _policies(backend: iam.IAMBackend) -> list[iam.ManagedPolicy]:
    """AWS's own, which nobody changes: parsed once, not for every partition of every account."""
    place = (backend.account_id, backend.region_name)
    if place not in _parsed:
        _parsed[place] = _parse_policies(backend)
    return _parsed[place]


def _close(backends: AccountSpecificBackend) -> None:
    if backends.service_name in _CLOSED:
        _reset(backends)


def apply() -> None:
    """Once, before the first account."""
    every = json.loads(iam.aws_managed_policies_data)
    iam.aws_managed_policies_data = json.dumps({k: v for k, v in every.items() if k.startswith(_MANAGED)})
    iam.IAMBackend._init_aws_policies = _policies  # type: ignore[method-assign]
    AccountSpecificBackend.reset = _close  # type: ignore[method-assign]
    # Answers for what asks AWS through the requests library. All that is asked here goes through botocore.
    core.RESPONSES_METHODS = []
    # Every answer looks through its class for what it can answer.
    responses.method_names_from_class = cache(responses.method_names_from_class)
    # Each session would read anew what all of them read: the descriptions of services.
    session.create_loader = cache(session.create_loader)

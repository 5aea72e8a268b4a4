"""Settings that skip parts of moto's setup that are not needed here, so that an account starts quickly; and mistakes
of moto's that no call could mend."""

import json
import os
from copy import copy
from functools import cache
from typing import Any

os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
# No instance is started here, and loading five thousand images takes half a second per account.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from botocore import session
from moto.core import models as core
from moto.core import responses
from moto.core.base_backend import AccountSpecificBackend
from moto.ec2.models.nat_gateways import NatGateway, NatGatewayBackend
from moto.ec2.models.subnets import Subnet, SubnetBackend
from moto.ec2.utils import generic_filter
from moto.iam import models as iam
from moto.s3 import models as s3
from moto.s3 import urls as s3_urls

# Of AWS's 1,300 managed policies, those of the services used here.
_MANAGED = (
    "AmazonSageMaker",
    "AmazonEKS",
    "AmazonEBSCSI",
    "AmazonFSx",
    "AmazonSSM",
    "AmazonPrometheus",
    "AmazonGrafana",
)
# Their backends must be closed; every other backend is simply replaced by a new one.
_CLOSED = ("s3", "batch")

_parse_policies, _reset = iam.IAMBackend._init_aws_policies, AccountSpecificBackend.reset
_create_subnet, _describe_nat_gateways = SubnetBackend.create_subnet, NatGatewayBackend.describe_nat_gateways
_parsed: dict[tuple[str, str], list[iam.ManagedPolicy]] = {}


def _policies(backend: iam.IAMBackend) -> list[iam.ManagedPolicy]:
    """AWS's managed policies, which never change: parsed once, not for every partition of every account."""
    place = (backend.account_id, backend.region_name)
    if place not in _parsed:
        _parsed[place] = _parse_policies(backend)
    return _parsed[place]


def _close(backends: AccountSpecificBackend) -> None:
    if backends.service_name in _CLOSED:
        _reset(backends)


def _subnet(backend: SubnetBackend, *args: Any, **given: Any) -> Subnet:
    """A subnet. moto makes the first one that names its zone by the id a default subnet, whose instances are public."""
    made = _create_subnet(backend, *args, **given)
    if not backend.get_vpc(made.vpc_id).is_default:  # type: ignore[attr-defined]  # of another part of the backend
        made.default_for_az = made.map_public_ip_on_launch = False
    return made


def _nat_gateways(backend: NatGatewayBackend, filters: Any, ids: list[str] | None) -> list[NatGateway]:
    """NAT gateways. moto ignores filters by tag, so that everybody's were the stack's."""
    tags = {name: values for name, values in (filters or {}).items() if name.startswith("tag")}
    found: list[NatGateway] = generic_filter(tags, _describe_nat_gateways(backend, filters, ids))
    return found


def apply() -> None:
    """Apply the settings, once, before the first account."""
    every = json.loads(iam.aws_managed_policies_data)
    iam.aws_managed_policies_data = json.dumps({k: v for k, v in every.items() if k.startswith(_MANAGED)})
    iam.IAMBackend._init_aws_policies = _policies  # type: ignore[method-assign]
    AccountSpecificBackend.reset = _close  # type: ignore[method-assign]
    SubnetBackend.create_subnet = _subnet  # type: ignore[method-assign]
    NatGatewayBackend.describe_nat_gateways = _nat_gateways  # type: ignore[method-assign]
    # Responses for callers that use the requests library. All calls here go through botocore.
    core.RESPONSES_METHODS = []
    # Every response lists the methods of its class.
    responses.method_names_from_class = cache(responses.method_names_from_class)
    # Otherwise every request to S3 loads the module of its addresses again: an environment variable may have changed.
    s3.S3Backend._url_module = s3_urls  # type: ignore[method-assign, assignment]
    # Listing one object's versions copies every object of the bucket, with all that it refers to.
    s3.FakeKey.__deepcopy__ = lambda key, memo: copy(key)  # type: ignore[attr-defined]
    # Otherwise each session reads the service descriptions again.
    session.create_loader = cache(session.create_loader)

"""AWS's managed policies in moto: those of the services in play, parsed once."""

from __future__ import annotations

import json
import os
from copy import copy

os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")

from moto.iam import models

# Of 1,300.
_PREFIXES = (
    "AmazonSageMaker",
    "AmazonEKS",
    "AmazonEBSCSI",
    "AmazonFSx",
    "AmazonSSM",
    "AmazonPrometheus",
    "AmazonGrafana",
)

_parse = models.IAMBackend._init_aws_policies
_parsed: dict[tuple[str, str], list[models.ManagedPolicy]] = {}


def _policies(backend: models.IAMBackend) -> list[models.ManagedPolicy]:
    """Copies, which count their own attachments; moto would parse them anew for every partition and reset."""
    place = (backend.account_id, backend.region_name)
    if place not in _parsed:
        _parsed[place] = _parse(backend)
    return [copy(policy) for policy in _parsed[place]]


def keep_those_in_play() -> None:
    """Once, before the first account."""
    every = json.loads(models.aws_managed_policies_data)
    models.aws_managed_policies_data = json.dumps({k: v for k, v in every.items() if k.startswith(_PREFIXES)})
    models.IAMBackend._init_aws_policies = _policies  # type: ignore[method-assign]

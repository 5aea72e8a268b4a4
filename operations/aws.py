"""AWS through boto3: clients with retries, pagination, and the caller's account."""

import os
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config as BotoConfig

from .terminal.output_options import OPTIONS

# Set where a rehearsal answers instead of AWS (rehearsal/served/): to the folder that has the rehearsed stack's file.
SERVED = "HYPERPOD_REHEARSAL"
# Adaptive mode also slows this client down when AWS throttles (Boto3 documentation, Retries).
_ATTEMPTS = 8


def _tell(model: Any, **_: Any) -> None:
    """Name a call to AWS. What it sends may be secret."""
    print(f"AWS: {model.service_model.service_name} {model.name}", file=sys.stderr, flush=True)


class Aws:
    """One account in one region, through the environment's credentials."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._clients: dict[str, Any] = {}

    def client(self, service: str, region: str | None = None) -> Any:
        """A service's client, by default in the stack's region."""
        key = f"{service}/{region or self.region}"
        if key not in self._clients:
            attempts = int(os.environ.get("AWS_MAX_ATTEMPTS", _ATTEMPTS))
            config = BotoConfig(
                retries={"mode": "adaptive", "total_max_attempts": attempts}, connect_timeout=10, read_timeout=60
            )
            self._clients[key] = boto3.client(service, region_name=region or self.region, config=config)
            if OPTIONS.verbose:
                self._clients[key].meta.events.register("before-call", _tell)
        return self._clients[key]

    def pages(
        self, service: str, operation: str, key: str, *, region: str | None = None, **arguments: Any
    ) -> Iterator[Any]:
        """Every item under ``key``, from all pages of an operation."""
        client = self.client(service, region)
        if client.can_paginate(operation):
            for page in client.get_paginator(operation).paginate(**arguments):
                yield from page.get(key) or ()
        else:
            yield from getattr(client, operation)(**arguments).get(key) or ()

    @cached_property
    def account_id(self) -> str:
        """The account of the credentials."""
        return str(self.client("sts").get_caller_identity()["Account"])

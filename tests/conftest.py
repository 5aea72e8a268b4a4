"""What holds for every test."""

from __future__ import annotations

import gc
from functools import cache

import botocore.session
import pulumi.runtime.resource
from pulumi.runtime.proto import source_pb2

# moto begins every account with a new session of boto3, which would read each service's model again.
botocore.session.create_loader = cache(botocore.session.create_loader)
# Where in the source each resource was registered: the engine of the tests asks nobody for it.
pulumi.runtime.resource._get_stack_trace = source_pb2.StackTrace


def pytest_collection_finish() -> None:
    """What the tests import stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()

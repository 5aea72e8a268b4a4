"""The account's refusals as provider errors for Pulumi's engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from pulumi.runtime.proto import provider_pb2, status_pb2

from ..account import Refused


@contextmanager
def refusals(context: Any) -> Iterator[None]:
    """Turn a refusal into a gRPC status and one sentence."""
    try:
        yield
    except Refused as refused:
        abort(context, str(refused))


def abort(context: Any, text: str) -> NoReturn:
    """Abort a call with one sentence."""
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
    raise AssertionError("abort raises")


def abort_with_state(context: Any, text: str, resource_id: str, state: Any) -> NoReturn:
    """Abort with an initialization error and a state. The engine keeps both.

    Bridged Terraform providers send the wanted state of an update that AWS refused (pulumi-terraform-bridge,
    pkg/tfbridge/provider.go, initializationError). Every provider sends that of a resource whose creation failed after
    AWS had accepted it (also pulumi-aws-native, provider/pkg/provider/provider.go, Create).
    """
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
    status.details.add().Pack(provider_pb2.ErrorResourceInitFailed(id=resource_id, properties=state, reasons=[text]))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, text)
    raise AssertionError("abort raises")

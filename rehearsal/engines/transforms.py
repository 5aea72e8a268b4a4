"""Transforms of resources, for an engine in the program's own process: Pulumi's calls them back over gRPC."""

from __future__ import annotations

from collections.abc import Iterable

from pulumi import ResourceOptions, ResourceTransform, ResourceTransformArgs, ResourceTransformResult
from pulumi.runtime.proto import callback_pb2

from operations.engine.state import ResourceState


class Transforms:
    """What the program's resources ask for by ``transforms``. Only those of a remote component's children are applied,
    which the program does not make itself.
    """

    def __init__(self) -> None:
        self._known: dict[str, ResourceTransform] = {}

    def register_transform(self, transform: ResourceTransform) -> callback_pb2.Callback:
        """What the SDK sends along with the resource."""
        token = str(len(self._known))
        self._known[token] = transform
        return callback_pb2.Callback(token=token)

    def apply(self, callbacks: Iterable[callback_pb2.Callback], child: ResourceState) -> None:
        """Give a child the inputs and the limits of time that its component's transforms want."""
        for callback in callbacks:
            args = ResourceTransformArgs(child.custom, child.type, child.name, child.inputs, ResourceOptions())
            result = self._known[callback.token](args)
            if isinstance(result, ResourceTransformResult):
                child.inputs = dict(result.props)
                if longer := result.opts.custom_timeouts:
                    given = {key: getattr(longer, key) for key in ("create", "update", "delete")}
                    child.options["customTimeouts"] = {key: limit for key, limit in given.items() if limit}

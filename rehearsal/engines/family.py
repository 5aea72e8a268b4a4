"""What registers a component and its children with the engine, as an SDK does."""

from typing import Any

from pulumi.runtime.proto import resource_pb2

from operations.engine.state import PROVIDER_PREFIX, ResourceState

from . import protocol

# Protocol features that this side supports, declared as the SDKs do.
_SPOKEN: dict[str, Any] = {
    "acceptSecrets": True,
    "acceptResources": True,
    "supportsPartialValues": True,
    "aliasSpecs": True,
}


class Family:
    """Registers a component and its children with the engine's resource monitor."""

    def __init__(self, monitor: Any, request: Any) -> None:
        self._monitor, self._request = monitor, request
        self._inputs, self._secrets = protocol.deserialize(request.inputs)

    def component(self) -> ResourceState:
        """Register the component itself, with the program's options."""
        request = self._request
        answer = self._registered(
            type=request.type,
            name=request.name,
            parent=request.parent,
            object=request.inputs,
            dependencies=request.dependencies,
            providers=request.providers,
            protect=request.protect if request.HasField("protect") else None,
            aliases=request.aliases,
        )
        # The component's dependsOn does not apply to its children. They wait for their inputs.
        named_by_inputs = {urn for depends in request.inputDependencies.values() for urn in depends.urns}
        return ResourceState(
            urn=answer.urn,
            type=request.type,
            name=request.name,
            custom=False,
            parent=request.parent,
            inputs=self._inputs,
            dependencies=tuple(sorted(named_by_inputs)),
        )

    def register(self, child: ResourceState) -> ResourceState:
        """Register one child with the program's provider for its package, and return the resulting resource."""
        package = "" if child.type.startswith(PROVIDER_PREFIX) or not child.custom else child.type.split(":")[0]
        inputs = {k: protocol.secret(v) if k in self._secrets else v for k, v in child.inputs.items()}
        answer = self._registered(
            type=child.type,
            name=child.name,
            parent=child.parent,
            custom=child.custom,
            object=protocol.serialize(inputs),
            dependencies=[urn for urn in child.dependencies if f"::{PROVIDER_PREFIX}" not in urn],
            provider=self._request.providers.get(package, ""),
            providers={} if child.custom else self._request.providers,
        )
        child.urn, child.id = answer.urn, answer.id
        child.outputs, _ = protocol.deserialize(answer.object)
        return child

    def _registered(self, **fields: Any) -> Any:
        return self._monitor.RegisterResource(resource_pb2.RegisterResourceRequest(**fields, **_SPOKEN))

    def finish(self, urn: str, state: Any) -> None:
        """Tell the engine that the component has no further children."""
        self._monitor.RegisterResourceOutputs(resource_pb2.RegisterResourceOutputsRequest(urn=urn, outputs=state))

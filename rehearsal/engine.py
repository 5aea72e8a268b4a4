"""The embedded engine: what Pulumi's deployment engine does with a program, in process and against one account.

It refuses what the real engine refuses, registers independent resources concurrently, and keeps a virtual clock: a
resource starts when the last thing it depends on is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import empty_pb2
from pulumi import FileAsset, StringAsset
from pulumi.runtime.mocks import MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.sync_await import _ensure_event_loop

from . import protocol
from .account import Account
from .account.kinds import Refused, after_update, provider_refuses
from .account.s3 import body
from .autoname import keeps_name, named, with_names
from .clock import duration
from .eks_component import construct_eks_cluster
from .events import Event, Operation
from .state import PROVIDER_PREFIX, STACK_TYPE, ResourceState, State, finish_of

CANCELLED = "cancelled"


class DeploymentError(Exception):
    """A deployment failed; the text names the resource and the cause."""


class _NoMocks(Mocks):
    """The monitor answers everything itself."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise AssertionError(f"{args.name} bypassed the engine")

    def call(self, args: Any) -> Any:
        raise AssertionError(f"{args.token} bypassed the engine")


class Engine(MockMonitor):
    """The resource monitor that a program registers its resources with.

    ``old`` is the state before; ``state`` grows while the program runs. With ``preview`` nothing is created and outputs
    stay unknown. ``on_event`` hears of every step, from several threads, one at a time. Once ``stop`` is set, nothing
    more is begun.
    """

    def __init__(
        self,
        account: Account,
        *,
        project: str,
        stack: str,
        old: Mapping[str, ResourceState] | None = None,
        preview: bool = False,
        on_event: Callable[[Event], None] = lambda event: None,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(_NoMocks())
        self.account, self.project, self.stack, self.preview = account, project, stack, preview
        self.old: dict[str, ResourceState] = dict(old or {})
        self.state: State = {}
        self.outputs: dict[str, Any] = {}
        self.secret_outputs: set[str] = set()
        self.failures: list[str] = []
        self.operations: dict[str, Operation] = {}
        self.replaced: list[ResourceState] = []
        self._on_event = on_event
        self._stop = stop or threading.Event()
        self._lock = threading.RLock()

    # What the program calls -------------------------------------------------------------------------------------------

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The URN, from the engine's own project and stack: the SDK's are not set on worker threads."""
        if parent and not parent.split("::")[2].endswith(STACK_TYPE):
            type_ = f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{self.stack}::{self.project}::{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Register, and for a custom resource create, change or keep it."""
        _ensure_event_loop()
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type == STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        inputs, secrets = protocol.deserialize(request.object)
        dependencies = {*request.dependencies, *(u for d in request.propertyDependencies.values() for u in d.urns)}
        if request.provider:
            dependencies.add(request.provider.rsplit("::", 1)[0])
        resource = ResourceState(
            urn=urn,
            type=request.type,
            name=request.name,
            custom=request.custom and not request.remote,
            parent=request.parent,
            inputs={key: _snapshot(value) for key, value in inputs.items()},
            dependencies=tuple(sorted(dependencies)),
            secrets=frozenset(secrets | set(request.additionalSecretOutputs)),
            protect=request.protect,
            retain=request.retainOnDelete,
            deleted_with=request.deletedWith,
        )
        self._enter(resource)
        if request.remote:
            resource.outputs = construct_eks_cluster(resource, self._register_child, self.account.partition)
        elif resource.custom:
            self._step(resource)
        return self._response(resource)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Keep the stack's own outputs; a component's add nothing to what its children show."""
        _ensure_event_loop()
        if request.urn.split("::")[2] == STACK_TYPE:
            self.outputs, self.secret_outputs = protocol.deserialize(request.outputs)
        return empty_pb2.Empty()

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Answer a function of a provider, or refuse one that the account does not know."""
        _ensure_event_loop()
        if request.tok == "pulumi:pulumi:getResource":
            return super().Invoke(request)
        try:
            answer = protocol.invoke(self.account, request.tok)
        except LookupError as error:
            raise DeploymentError(str(error)) from error
        return resource_pb2.ResourceInvokeResponse(**{"return": protocol.serialize(answer)})

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Nothing in this project reads a resource that it does not make."""
        raise DeploymentError(f"the embedded account does not read {request.type}")

    # What becomes of it -----------------------------------------------------------------------------------------------

    def _register_child(self, child: ResourceState) -> ResourceState:
        """Register a resource of a remote component, as its provider would."""
        child.urn = self.make_urn(child.parent, child.type, child.name)
        self._enter(child)
        if child.custom:
            self._step(child)
        self._response(child)
        return child

    def _enter(self, resource: ResourceState) -> None:
        with self._lock:
            if self._stop.is_set() and not self.failures:
                self.failures.append(CANCELLED)
            if self.failures:
                raise DeploymentError(f"{resource.name}: not started, the deployment has failed")
            if resource.urn in self.state:
                self._fail(resource, "create", f"Duplicate resource URN '{resource.urn}'; try giving it a unique name")
            self.state[resource.urn] = resource
            resource.start = resource.finish = finish_of(self.state, resource.dependencies)

    def _step(self, resource: ResourceState) -> None:
        """Bring one custom resource to what the program says."""
        if resource.type.startswith(PROVIDER_PREFIX):
            resource.id = f"{resource.name}-provider"
            resource.outputs = dict(resource.inputs)
            return
        old = self.old.get(resource.urn)
        given = resource.inputs
        resource.inputs = with_names(resource, old)
        operation = self._operation(resource, old)
        if operation == "replace":
            # The old resource has the name that was made up first.
            resource.inputs = named(resource.type, resource.name, given, {})
        self.operations[resource.urn] = operation
        if refusals := provider_refuses(resource.type, resource.inputs):
            self._fail(resource, operation, "; ".join(refusals))
        if self.preview:
            if old and operation in ("same", "update"):
                resource.outputs = after_update(old.outputs, old.inputs, resource.inputs)
            else:
                resource.outputs = protocol.planned(resource.type, resource.inputs)
            resource.id = old.id if old and operation in ("same", "update") else ""
            return
        if operation == "same" and old:
            resource.id, resource.outputs = old.id, old.outputs
            resource.start, resource.finish = old.start, old.finish
            return
        self._tell(Event("start", operation, resource))
        try:
            self._apply(resource, old, operation)
        except Refused as refused:
            self._fail(resource, operation, str(refused))
        self._tell(Event("done", operation, resource))

    def _operation(self, resource: ResourceState, old: ResourceState | None) -> Operation:
        if old is None:
            return "create"
        changed, replace = self.account.diff(resource.type, comparable(old.inputs), comparable(resource.inputs))
        return "same" if not changed else "replace" if replace else "update"

    def _apply(self, resource: ResourceState, old: ResourceState | None, operation: Operation) -> None:
        resource.finish = resource.start + duration(resource.type, resource.inputs)
        if operation == "update" and old:
            resource.id = old.id
            resource.outputs = self.account.update(resource.type, old.id, resource.inputs)
            return
        if operation == "replace" and old:
            if keeps_name(resource.type, old.inputs, resource.inputs):
                # A chosen name is free only when its owner is gone.
                self.account.delete(old.type, old.id)
                del self.old[old.urn]
            else:
                self.replaced.append(old)
        resource.id, resource.outputs = self.account.create(
            resource.type, resource.name, resource.inputs, at=resource.start, ready_at=resource.finish
        )

    def _fail(self, resource: ResourceState, operation: Operation, cause: str) -> None:
        with self._lock:
            message = f"{resource.name} ({resource.type}): {operation} failed: {cause}"
            self.failures.append(message)
            if not resource.id and self.state.get(resource.urn) is resource:
                del self.state[resource.urn]
                if resource.urn in self.old:
                    self.state[resource.urn] = self.old[resource.urn]
        self._tell(Event("failed", operation, resource, cause))
        raise DeploymentError(message)

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._on_event(event)

    def _response(self, resource: ResourceState) -> Any:
        outputs = {
            key: protocol.secret(value) if key in resource.secrets and value is not None else value
            for key, value in resource.outputs.items()
            # A file's content may be no text that the wire can carry, and no program reads it back.
            if not isinstance(value, StringAsset)
        }
        self.resources[resource.urn] = MockMonitor.ResourceRegistration(resource.urn, resource.id, outputs)
        answer = protocol.serialize(outputs)
        return resource_pb2.RegisterResourceResponse(urn=resource.urn, id=resource.id, object=answer)


def _snapshot(value: Any) -> Any:
    """A file as it is now: the state must not change when somebody edits the file later."""
    if isinstance(value, FileAsset):
        return StringAsset(body(value).decode(errors="surrogateescape"))
    return value


def comparable(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with assets as their content: asset objects are equal only to themselves."""
    return {key: body(value) if isinstance(value, StringAsset) else value for key, value in inputs.items()}

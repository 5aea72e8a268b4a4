"""The embedded engine: does what Pulumi's deployment engine does, but in process and against one account.

It refuses what the real engine refuses, makes one resource after the other, and keeps a virtual clock: a resource
starts there when the last thing it depends on is done, so independent ones are under way at the same time.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

from google.protobuf import empty_pb2
from pulumi import (
    FileAsset,
    ResourceOptions,
    ResourceTransform,
    ResourceTransformArgs,
    ResourceTransformResult,
    StringAsset,
)
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import callback_pb2, provider_pb2, resource_pb2

from operations.engine.durations import delete_duration, duration, update_duration
from operations.engine.events import Event, Operation
from operations.engine.state import PROVIDER_PREFIX, STACK_TYPE, ResourceState, State, deletion_order, finish_of

from ..account import Account, HalfMade, Refused
from ..account.kinds import after_update, provider_refuses
from ..account.s3 import body
from . import protocol
from .aliases import Aliases
from .autoname import keeps_name, named, with_names
from .default_tags import default_tags, takes_over, with_default_tags
from .eks_component import construct_eks_cluster


class Transforms:
    """What the program's resources ask for by ``transforms``. Only those of a remote component's children are applied,
    which the program does not make itself.
    """

    def __init__(self) -> None:
        self._known: dict[str, ResourceTransform] = {}

    def register_transform(self, transform: ResourceTransform) -> callback_pb2.Callback:
        """Return what the SDK sends along with the resource."""
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


CANCELLED = "cancelled"


class DeploymentError(Exception):
    """A deployment failed. The text names the resource and the cause."""


class _NoMocks(Mocks):
    """Never called: the monitor answers everything itself."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        raise AssertionError(f"{args.name} bypassed the engine")

    def call(self, args: Any) -> Any:
        raise AssertionError(f"{args.token} bypassed the engine")


class Engine(MockMonitor):
    """The resource monitor that a program registers its resources with.

    ``old`` and ``old_outputs`` are the previous state, ``began`` is the virtual second at which this run begins;
    ``state`` grows while the program runs. With ``preview`` nothing is created and outputs stay unknown. ``on_event``
    is called for every step. Once ``stop`` is set, no further step begins.
    """

    def __init__(
        self,
        account: Account,
        *,
        project: str,
        stack: str,
        old: Mapping[str, ResourceState] | None = None,
        preview: bool = False,
        began: float = 0.0,
        old_outputs: Mapping[str, Any] | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(_NoMocks())
        self.account, self.project, self.stack, self.preview = account, project, stack, preview
        self.began, self.old_outputs = began, dict(old_outputs or {})
        self.old: dict[str, ResourceState] = dict(old or {})
        self._aliases = Aliases(self.old, self.make_urn)
        self.state: State = {}
        self.outputs: dict[str, Any] = {}
        self.secret_outputs: set[str] = set()
        self.failures: list[str] = []
        self.operations: dict[str, Operation] = {}
        self.replaced: list[ResourceState] = []
        # Resources deleted before their replacements were created, by URN.
        self.made_way: dict[str, ResourceState] = {}
        self._on_event = on_event
        self._stop = stop or threading.Event()
        self.transforms = Transforms()

    # What the program calls -------------------------------------------------------------------------------------------

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The URN, built from the engine's own project and stack."""
        if parent and not parent.split("::")[2].endswith(STACK_TYPE):
            type_ = f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{self.stack}::{self.project}::{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        """Register a resource; create, change or keep it if it is a custom resource."""
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
            property_dependencies={key: tuple(d.urns) for key, d in request.propertyDependencies.items()},
            ignore_changes=tuple(request.ignoreChanges),
            delete_first=request.deleteBeforeReplace,
            secrets=frozenset(secrets | set(request.additionalSecretOutputs)),
            protect=request.protect,
            retain=request.retainOnDelete,
            deleted_with=request.deletedWith,
            options=protocol.options(request),
        )
        self._enter(resource)
        if request.remote:
            register = partial(self._register_child, request.transforms)
            resource.outputs = construct_eks_cluster(resource, register, self.account.partition)
        elif resource.custom:
            self._step(resource)
        return self._response(resource)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        """Keep the stack's outputs. A component's outputs only repeat its children's."""
        if request.urn.split("::")[2] == STACK_TYPE:
            self.outputs, self.secret_outputs = protocol.deserialize(request.outputs)
        return empty_pb2.Empty()

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        """Answer a provider function, or refuse one that the account does not know."""
        if request.tok == "pulumi:pulumi:getResource":
            return super().Invoke(request)
        if request.tok == "pulumi:pulumi:readStackOutputs":
            answer = {"name": "", "outputs": self.old_outputs, "secretOutputNames": []}
            return resource_pb2.ResourceInvokeResponse(**{"return": protocol.serialize(answer)})
        try:
            answer = protocol.invoke(self.account, request.tok, protocol.deserialize(request.args)[0])
        except LookupError as error:
            raise DeploymentError(str(error)) from error
        except Refused as refused:
            failure = provider_pb2.CheckFailure(reason=str(refused))
            return resource_pb2.ResourceInvokeResponse(failures=[failure])
        return resource_pb2.ResourceInvokeResponse(**{"return": protocol.serialize(answer)})

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        """Look up a resource that the stack neither creates nor deletes."""
        resource = ResourceState(
            urn=self.make_urn(request.parent, request.type, request.name),
            type=request.type,
            name=request.name,
            custom=True,
            external=True,
            parent=request.parent,
            id=request.id,
            dependencies=tuple(sorted({*request.dependencies, request.provider.rsplit("::", 1)[0]} - {""})),
        )
        self._enter(resource)
        try:
            resource.outputs = self.account.read(request.type, request.id)
        except Refused as refused:
            self._fail(resource, "read", str(refused))
        answer = self._response(resource)
        return resource_pb2.ReadResourceResponse(urn=answer.urn, id=request.id, properties=answer.object)

    # What becomes of it -----------------------------------------------------------------------------------------------

    def _register_child(self, transforms: Iterable[callback_pb2.Callback], child: ResourceState) -> ResourceState:
        """Register a resource of a remote component, as its provider would."""
        self.transforms.apply(transforms, child)
        child.urn = self.make_urn(child.parent, child.type, child.name)
        self._enter(child)
        if child.custom:
            self._step(child)
        self._response(child)
        return child

    def _enter(self, resource: ResourceState) -> None:
        if self._stop.is_set() and not self.failures:
            self.failures.append(CANCELLED)
        if self.failures:
            raise DeploymentError(f"{resource.name}: not started, the deployment has failed")
        if resource.urn in self.state:
            self._fail(resource, "create", f"Duplicate resource URN '{resource.urn}'; try giving it a unique name")
        self._aliases.settle(resource)
        self.state[resource.urn] = resource
        resource.start = resource.finish = max(self.began, finish_of(self.state, resource.dependencies))

    def _step(self, resource: ResourceState) -> None:
        """Bring one custom resource to its declared state."""
        if resource.type.startswith(PROVIDER_PREFIX):
            resource.id = f"{resource.name}-provider"
            resource.outputs = dict(resource.inputs)
            self.account.upserts |= takes_over(resource.inputs)
            return
        old = self.old.get(resource.urn)
        if old is not None:
            _keep_ignored(resource, old)
        resource.inputs = with_default_tags(resource.type, resource.inputs, self._default_tags(resource))
        given = resource.inputs
        resource.inputs = with_names(resource, old)
        operation = self._operation(resource, old)
        if operation == "replace":
            # The old resource has the name that was generated first.
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
            try:
                self.account.judge(resource.type, resource.inputs)
            except Refused as refused:
                self._fail(resource, operation, str(refused))
            return
        if operation == "same" and old:
            resource.id, resource.outputs = old.id, old.outputs
            resource.start, resource.finish = old.start, old.finish
            return
        self._on_event(Event("start", operation, resource))
        try:
            self._apply(resource, old, operation)
        except HalfMade as half:
            resource.id, resource.outputs = half.id, half.outputs
            resource.unsure = resource.half_made = True
            self._fail(resource, operation, str(half))
        except Refused as refused:
            # The call's answer, which takes no time.
            resource.finish = resource.start
            self._fail(resource, operation, str(refused))
        self._on_event(Event("done", operation, resource))

    def _default_tags(self, resource: ResourceState) -> dict[str, str]:
        """The default tags of the resource's provider, on which it depends like on any other resource."""
        package = f"{PROVIDER_PREFIX}{resource.type.split(':')[0]}::"
        providers = [self.state[urn] for urn in resource.dependencies if package in urn and urn in self.state]
        return default_tags(providers[0].inputs) if providers else {}

    def _operation(self, resource: ResourceState, old: ResourceState | None) -> Operation:
        if old is None:
            return "create"
        if old.urn in self.made_way:
            return "replace"
        try:
            changed, replaces = self.account.diff(resource.type, comparable(old.inputs), comparable(resource.inputs))
        except LookupError as unknown:
            self._fail(resource, "update", str(unknown))
        if replaces and old.protect:
            self._fail(resource, "replace", f"it is protected, and {', '.join(sorted(replaces))} makes a new one")
        return "replace" if replaces else "update" if changed or old.unsure else "same"

    def _apply(self, resource: ResourceState, old: ResourceState | None, operation: Operation) -> None:
        if operation == "update" and old:
            resource.id = old.id
            if old.unsure and comparable(old.inputs) == comparable(resource.inputs):
                # Nothing differs from the state, so AWS is not called.
                resource.outputs, resource.finish = old.outputs, resource.start
                return
            resource.outputs = self.account.update(resource.type, old.id, resource.inputs, at=resource.start)
            resource.finish = resource.start + update_duration(resource.type, old.inputs, resource.inputs)
            return
        if operation == "replace" and old and old.urn not in self.made_way:
            if resource.delete_first or keeps_name(resource.type, old.inputs, resource.inputs):
                resource.start += self._make_way(old)
            else:
                self.replaced.append(old)
        resource.finish = resource.start + duration(resource.type, resource.inputs)
        resource.id, resource.outputs = self.account.create(
            resource.type, resource.name, resource.inputs, at=resource.start, ready_at=resource.finish
        )

    def _make_way(self, old: ResourceState) -> float:
        """Delete a resource whose replacement has the same name, its dependents first. Returns the seconds."""
        doomed = self._dependents(old)
        for resource in deletion_order({one.urn: one for one in doomed}):
            if resource.protect:
                raise Refused("Protected", f"{resource.name} has to go first, and it is protected")
            if resource.in_account and not resource.retain:
                self.account.delete(resource.type, resource.id)
            self.made_way[resource.urn] = resource
        return sum(delete_duration(resource.type) for resource in doomed)

    def _dependents(self, old: ResourceState) -> list[ResourceState]:
        """A resource, and all resources that would be replaced if the values they take from it changed.

        Pulumi's engine finds them the same way: by their provider's answer to a diff with those inputs unknown.
        """
        found = {old.urn: old}
        for one in self.old.values():
            if one.urn in self.made_way or not one.in_account:
                continue
            unknown = {key for key, urns in one.property_dependencies.items() if found.keys() & set(urns)}
            changed = one.inputs | dict.fromkeys(unknown, rpc.UNKNOWN)
            if unknown and self.account.diff(one.type, comparable(one.inputs), comparable(changed))[1]:
                found[one.urn] = one
        return list(found.values())

    def _fail(self, resource: ResourceState, operation: Operation, cause: str) -> NoReturn:
        message = f"{resource.name} ({resource.type}): {operation} failed: {cause}"
        self.failures.append(message)
        if self.state.get(resource.urn) is resource:
            self._note_failed(resource)
        self._on_event(Event("failed", operation, resource, cause))
        raise DeploymentError(message)

    def _note_failed(self, resource: ResourceState) -> None:
        """Record a resource whose step failed: the state keeps what it had, if anything, or what is half-made.

        Updates that AWS refused are different. Bridged Terraform providers return the wanted state with an
        initialization error, and Pulumi keeps that state. The next update compares with it: the same values succeed
        without a change, and the old values count as a change back. Only a refresh asks AWS (pulumi/pulumi issue
        21458; pulumi-terraform-bridge, pkg/tfbridge/provider.go, Update). pulumi-aws-native returns only the error
        (provider/pkg/provider/provider.go, Update), and the update is tried again.
        """
        old = self.old.get(resource.urn)
        if resource.half_made:
            return
        if resource.id and old is not None and resource.type.startswith("aws:"):
            resource.outputs, resource.unsure = after_update(old.outputs, old.inputs, resource.inputs), True
            return
        del self.state[resource.urn]
        if old is not None and resource.urn not in self.made_way:
            self.state[resource.urn] = old

    def _response(self, resource: ResourceState) -> Any:
        outputs = {
            key: protocol.secret(value) if key in resource.secrets and value is not None else value
            for key, value in resource.outputs.items()
            # A file's content may not be valid text for the protocol, and no program reads it back.
            if not isinstance(value, StringAsset)
        }
        self.resources[resource.urn] = MockMonitor.ResourceRegistration(resource.urn, resource.id, outputs)
        answer = protocol.serialize(outputs)
        return resource_pb2.RegisterResourceResponse(urn=resource.urn, id=resource.id, object=answer)


def _keep_ignored(resource: ResourceState, old: ResourceState) -> None:
    """Reset the inputs named in ignoreChanges to their old values."""
    for path in resource.ignore_changes:
        *above, name = path.split(".")
        new, before = resource.inputs, old.inputs
        for part in above:
            new, before = new.get(part, {}), before.get(part, {})
        new.pop(name, None)
        if name in before:
            new[name] = before[name]


def _snapshot(value: Any) -> Any:
    """A file's current content, so that later edits of the file do not change the state."""
    if isinstance(value, FileAsset):
        return StringAsset(body(value).decode(errors="surrogateescape"))
    return value


def comparable(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with assets replaced by their content, since asset objects are equal only to themselves."""
    return {key: body(value) if isinstance(value, StringAsset) else value for key, value in inputs.items()}

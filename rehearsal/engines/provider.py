# ruff: noqa: ARG002, N802 - the methods' names and arguments are those of the provider protocol
"""The embedded account as Pulumi providers, which `pulumi up` calls instead of AWS and Kubernetes.

One gRPC server per package, all on one account. The engine attaches to running servers whose ports are in
``PULUMI_DEBUG_PROVIDERS``, so neither the program nor the CLI notices a difference.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pulumi
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, resource_pb2_grpc, status_pb2

from ..account import Account, HalfMade, Refused
from ..account.kinds import after_update, provider_refuses
from . import protocol
from .autoname import NAMED, keeps_name, named
from .default_tags import default_tags, takes_over, with_default_tags
from .eks_component import construct_eks_cluster
from .family import Family
from .own_user import OwnUser
from .structs import comparable, copied, filled_in, note_filled_in, state_of, values_of


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


PACKAGES = ("aws", "aws-native", "kubernetes", "eks")
# By default the engine handles 16 resources in parallel. A component waits for its children on a separate thread.
_THREADS = 48
# The engine's own limit for one message.
_CHANNEL = [("grpc.max_receive_message_length", 400 * 1024 * 1024)]


class EmbeddedProvider(provider_pb2_grpc.ResourceProviderServicer):
    """One package's provider. ``folder`` is the program's; relative asset paths start there."""

    def __init__(self, account: Account, package: str, folder: Path) -> None:
        self.account, self.package, self.folder = account, package, folder
        self._default_tags: dict[str, str] = {}
        # The wanted state of refused updates, by type and id. The engine keeps it as the state until a refresh.
        self._wanted: dict[tuple[str, str], dict[str, Any]] = {}

    # The plugin itself ------------------------------------------------------------------------------------------------

    def Handshake(self, request: Any, context: Any) -> Any:
        """Accept secrets and resource ids as such, and the dependencies of a component's inputs beside them."""
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=self._takes_references, accept_outputs=False
        )

    def Attach(self, request: Any, context: Any) -> Any:
        """Do nothing: this provider never calls the engine on its own."""
        return empty_pb2.Empty()

    # No call takes long enough to need cancelling.
    Cancel = Attach

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        """The version of the installed SDK, which the program was written for."""
        return plugin_pb2.PluginInfo(version=self._version())

    def GetSchema(self, request: Any, context: Any) -> Any:
        """A minimal schema that names the package. Programs bring their own SDK."""
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self.package, "version": self._version()}))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        """Accept any configuration."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        """A new region replaces the provider, and with it every resource."""
        changed = _changed(comparable(request.old_inputs), comparable(request.news))
        return _diff_response(changed, changed & {"region"})

    def Configure(self, request: Any, context: Any) -> Any:
        """Support previews, and keep the default tags, which one of a package's providers has."""
        self._default_tags = default_tags(comparable(request.args)) or self._default_tags
        self.account.upserts |= takes_over(comparable(request.args))
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=self._takes_references
        )

    @property
    def _takes_references(self) -> bool:
        """Whether resource references are accepted: only by a component's provider, not by a bridged one."""
        return self.package == "eks"

    def _version(self) -> str:
        return metadata.version(f"pulumi-{self.package}")

    # Resources --------------------------------------------------------------------------------------------------------

    def Check(self, request: Any, context: Any) -> Any:
        """The inputs with all tags and, if AWS needs one, a name that the resource keeps for life."""
        token, name = _token(request), _name(request)
        if reasons := provider_refuses(token, comparable(request.news)):
            return provider_pb2.CheckResponse(
                inputs=request.news,
                failures=[provider_pb2.CheckFailure(property="", reason=reason) for reason in reasons],
            )
        olds, news = comparable(request.olds), comparable(request.news)
        key = NAMED.get(token, "")
        before = {key: olds.get(key)} if key in filled_in(request.olds) else {}
        complete = named(token, name, news, before)
        made_up = sorted(complete.keys() - news.keys())
        complete = with_default_tags(token, complete, self._default_tags)
        inputs = copied(request.news)
        inputs.update({k: v for k, v in complete.items() if k not in news})
        note_filled_in(inputs, made_up)
        return provider_pb2.CheckResponse(inputs=inputs)

    def Diff(self, request: Any, context: Any) -> Any:
        """The differences that matter to the account. A chosen name is free only once the old resource is deleted."""
        token = _token(request)
        old, new = comparable(request.old_inputs), comparable(request.news)
        # Bridged Terraform providers compare with the state, not with the program's previous inputs.
        old = self._wanted.get((token, request.id), old)
        changed, replaces = self.account.diff(token, old, new)
        chosen = NAMED.get(token) not in filled_in(request.news)
        return _diff_response(changed, replaces, delete_first=chosen and keeps_name(token, old, new))

    def Create(self, request: Any, context: Any) -> Any:
        """Create a resource, or in a preview return what is known about it."""
        token, name = _token(request), _name(request)
        inputs = self._deserialize(request.properties)
        if request.preview:
            with refusals(context):
                self.account.judge(token, inputs)
            properties = state_of(request.properties, inputs, protocol.planned(token, inputs))
            return provider_pb2.CreateResponse(id="", properties=properties)
        with refusals(context):
            try:
                resource_id, outputs = self.account.create(token, name, inputs)
            except HalfMade as half:
                abort_with_state(context, str(half), half.id, state_of(request.properties, inputs, half.outputs))
        return provider_pb2.CreateResponse(id=resource_id, properties=state_of(request.properties, inputs, outputs))

    def Read(self, request: Any, context: Any) -> Any:
        """What the account has under this id, spelled as the engine already knows it. Empty if it is gone."""
        token = _token(request)
        self._wanted.pop((token, request.id), None)
        try:
            outputs = self.account.read(token, request.id)
        except Refused:
            return provider_pb2.ReadResponse()
        known = self._deserialize(request.inputs)
        live = self.account.refreshed(token, request.id, known)
        old = self._deserialize(request.properties)
        inputs = state_of(request.inputs, known, live)
        for key in known.keys() - live.keys():
            del inputs.fields[key]
        note_filled_in(inputs, filled_in(request.inputs))
        return provider_pb2.ReadResponse(
            id=request.id, inputs=inputs, properties=state_of(request.properties, old, outputs)
        )

    def Update(self, request: Any, context: Any) -> Any:
        """Change a resource in place, or in a preview return the result."""
        token = _token(request)
        inputs = self._deserialize(request.news)
        wanted = after_update(self._deserialize(request.olds), self._deserialize(request.old_inputs), inputs)
        if request.preview:
            return provider_pb2.UpdateResponse(properties=state_of(request.news, inputs, wanted))
        if comparable(request.news) == self._wanted.get((token, request.id), comparable(request.old_inputs)):
            # Nothing differs from the state, so AWS changes nothing. The engine asks after an initialization error.
            return provider_pb2.UpdateResponse(properties=request.olds)
        try:
            outputs = self.account.update(token, request.id, inputs)
        except Refused as refused:
            if self.package != "aws":
                abort(context, str(refused))
            self._wanted[token, request.id] = comparable(request.news)
            abort_with_state(context, str(refused), request.id, state_of(request.news, inputs, wanted))
        self._wanted.pop((token, request.id), None)
        return provider_pb2.UpdateResponse(properties=state_of(request.news, inputs, outputs))

    def Delete(self, request: Any, context: Any) -> Any:
        """Delete a resource, unless another one still uses it."""
        with refusals(context):
            self.account.delete(_token(request), request.id)
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        """Answer a function, or refuse an unknown one."""
        try:
            with refusals(context):
                answer = protocol.invoke(self.account, request.tok, protocol.deserialize(request.args)[0])
        except LookupError as error:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
        return provider_pb2.InvokeResponse(**{"return": protocol.serialize(answer)})

    def _deserialize(self, struct: Any) -> dict[str, Any]:
        return {key: self._found(value) for key, value in values_of(struct)[0].items()}

    def _found(self, value: Any) -> Any:
        """A program's file, whatever the current folder."""
        return pulumi.FileAsset(self.folder / value.path) if isinstance(value, pulumi.FileAsset) else value

    # Components -------------------------------------------------------------------------------------------------------

    def Construct(self, request: Any, context: Any) -> Any:
        """Register a component and its children with the calling engine."""
        with grpc.insecure_channel(request.monitorEndpoint, options=_CHANNEL) as channel:
            family = Family(resource_pb2_grpc.ResourceMonitorStub(channel), request)
            component = family.component()
            try:
                outputs = construct_eks_cluster(component, family.register, self.account.partition)
            except grpc.RpcError as error:
                # The engine has already reported the child's failure.
                context.abort(error.code(), error.details())
                raise
            state = protocol.serialize(outputs)
            family.finish(component.urn, state)
        depends = provider_pb2.ConstructResponse.PropertyDependencies(urns=[outputs["eksCluster"]["urn"]])
        return provider_pb2.ConstructResponse(
            urn=component.urn, state=state, stateDependencies=dict.fromkeys(outputs, depends)
        )


@contextmanager
def serve(account: Account, folder: Path, packages: Sequence[str] = PACKAGES) -> Iterator[dict[str, str]]:
    """Serve packages from the account. Yields the environment in which `pulumi` finds the servers."""
    servers, ports = [], {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="provider") as threads:
        for package in packages:
            server = grpc.server(threads, options=_CHANNEL, interceptors=[OwnUser()])
            provider_pb2_grpc.add_ResourceProviderServicer_to_server(EmbeddedProvider(account, package, folder), server)
            ports[package] = server.add_insecure_port("127.0.0.1:0")
            server.start()
            servers.append(server)
        try:
            yield {"PULUMI_DEBUG_PROVIDERS": ",".join(f"{package}:{port}" for package, port in ports.items())}
        finally:
            for server in servers:
                server.stop(grace=None).wait()


def _token(request: Any) -> str:
    """The resource's type. Engines before 3.130 send it only in the URN."""
    return str(request.type or request.urn.split("::")[2].rsplit("$", 1)[-1])


def _name(request: Any) -> str:
    return str(request.name or request.urn.split("::", 3)[3])


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def _diff_response(changed: set[str], replaces: set[str], *, delete_first: bool = False) -> Any:
    answer = provider_pb2.DiffResponse
    return answer(
        changes=answer.DIFF_SOME if changed else answer.DIFF_NONE,
        diffs=sorted(changed),
        replaces=sorted(replaces),
        deleteBeforeReplace=bool(replaces) and delete_first,
    )

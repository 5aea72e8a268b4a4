"""Events of resources while an engine runs: the embedded engine's, and the Pulumi CLI's in the same form."""

from dataclasses import dataclass
from typing import Any, Literal

from .state import PROVIDER_PREFIX, STACK_TYPE, ResourceState

# The CLI has more (create-replacement, delete-replaced, discard-replaced, refresh, read, import).
Operation = Literal["create", "update", "replace", "same", "delete", "read"]
# What the CLI does not change, or says twice: of a replacement it announces its parts as well.
_QUIET = ("same", "refresh", "read", "replace")


@dataclass(frozen=True)
class Event:
    """Something that happened to a resource: ``phase`` is start, done or failed; ``error`` may come apart from it."""

    phase: Literal["start", "done", "failed"]
    operation: str
    resource: ResourceState
    error: str = ""


def from_automation(event: Any) -> Event | None:
    """The step that an event of the Automation API is about; None where it is none, or changes nothing."""
    for phase, step in (
        ("start", event.resource_pre_event),
        ("done", event.res_outputs_event),
        ("failed", event.res_op_failed_event),
    ):
        if step is not None and changes(step.metadata):
            return Event(phase, text(step.metadata.op), _resource(step.metadata))  # type: ignore[arg-type]
    return None


def changes(metadata: Any) -> bool:
    """Whether a step is about a resource that the account has, and changes it."""
    custom = metadata.type != STACK_TYPE and not metadata.type.startswith(PROVIDER_PREFIX) and metadata.provider
    return bool(custom) and text(metadata.op) not in _QUIET


def text(operation: Any) -> str:
    """An operation's word."""
    return str(getattr(operation, "value", operation))


def _resource(metadata: Any) -> ResourceState:
    state = metadata.new or metadata.old
    return ResourceState(
        urn=metadata.urn,
        type=metadata.type,
        name=name_of(metadata.urn),
        custom=True,
        parent=state.parent if state else "",
        inputs=dict(state.inputs or {}) if state else {},
        id=(state.id or "") if state else "",
    )


def name_of(urn: str) -> str:
    """The logical name in a URN."""
    return urn.split("::", 3)[3]


def type_of(urn: str) -> str:
    """The type in a URN, without its parents'."""
    return urn.split("::", 3)[2].rsplit("$", 1)[-1]

"""The engine's messages of a resource's values: as Python has them, as they compare, and written back."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from google.protobuf import json_format, struct_pb2
from pulumi.runtime import rpc

from . import protocol

# The key under which a provider records the inputs that it filled in, like Pulumi's bridged providers.
_DEFAULTS = "__defaults"


def copied(struct: Any) -> Any:
    """A copy that may be changed."""
    copy = struct_pb2.Struct()
    copy.CopyFrom(struct)
    return copy


def filled_in(struct: Any) -> list[str]:
    """The inputs that ``Check`` filled in, not the program."""
    return list(json_format.MessageToDict(struct).get(_DEFAULTS, []))


def note_filled_in(struct: Any, names: Sequence[str]) -> None:
    """Record the inputs that ``Check`` filled in."""
    if names:
        struct.update({_DEFAULTS: list(names)})


def values_of(struct: Any) -> tuple[dict[str, Any], set[str]]:
    """The values, and which of them are secret. Old assets are left out: the engine sends only their hashes."""
    present = copied(struct)
    for key, value in struct.fields.items():
        if _is(value.struct_value, rpc._special_asset_sig) and not {"path", "text", "uri"} & value.struct_value.keys():  # type: ignore[attr-defined]
            del present.fields[key]
    present.fields.pop(_DEFAULTS, None)
    return protocol.deserialize(present)


def state_of(raw: Any, known: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """``raw``, whose values are ``known``, overlaid with ``values``.

    Unchanged values stay as the engine sent them: secrets stay secret, and assets keep their hashes.
    """
    _, secrets = values_of(raw)
    changed = {
        key: protocol.secret(value) if key in secrets else value
        for key, value in values.items()
        if not isinstance(value, pulumi.Asset) and (key not in known or known[key] != value)
    }
    state = copied(raw)
    state.fields.pop(_DEFAULTS, None)
    for key, value in protocol.serialize(changed).fields.items():
        state.fields[key].CopyFrom(value)
    return state


def comparable(struct: Any) -> dict[str, Any]:
    """Values in a form that compares equal if nothing has changed: secrets unwrapped, assets as content hashes."""
    return {key: _open(v) for key, v in json_format.MessageToDict(struct).items() if key != _DEFAULTS}


def _open(value: Any) -> Any:
    if isinstance(value, list):
        return [_open(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _is(value, rpc._special_secret_sig):  # type: ignore[attr-defined]
        return _open(value["value"])
    if _is(value, rpc._special_asset_sig) and value.get("hash"):  # type: ignore[attr-defined]
        return value["hash"]
    return {key: _open(item) for key, item in value.items() if item is not None}


def _is(value: Any, signature: str) -> bool:
    key = rpc._special_sig_key  # type: ignore[attr-defined]
    return key in value and value[key] == signature

"""Which inputs of a resource change, from what to what. Nothing of a secret is told but that it is one."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .state import SECRET

# What stands for a value that is only known afterwards, and what marks a secret, in Pulumi's own form
# (pulumi/pulumi: sdk/go/common/resource/plugin/rpc.go, UnknownStringValue; sdk/go/common/resource, SigKey, SecretSig).
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
MARK, _SECRET_MARK = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
_LATER = "known after the deployment"
_NONE = "none"
_LONGEST = 60
# Provider's notes, and tags that come again with `tags`.
_SILENT = ("__defaults", "tagsAll")


def changed(
    old: Mapping[str, Any], new: Mapping[str, Any], secrets: Collection[str] = (), said: Collection[str] = ()
) -> dict[str, tuple[str, str]]:
    """The inputs that differ, by path, as texts. ``secrets`` are inputs that hold one; ``said`` those that differ by
    the engine's word, which secrets can do unseen.
    """
    found: dict[str, tuple[str, str]] = {}
    for key in sorted({*old, *new} - {*_SILENT}):
        before, after = old.get(key), new.get(key)
        if key in secrets or _secret(before) or _secret(after):
            if before != after or key in said:
                found[key] = (SECRET if key in old else _NONE, SECRET if key in new else _NONE)
        else:
            found.update(_differences(key, before, after))
    return found


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    old, new = _parsed(old), _parsed(new)
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not (_secret(old) or _secret(new)):
        for key in sorted({*old, *new} - {*_SILENT}):
            yield from _differences(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        before, after = _keyed(old), _keyed(new)
        for key in before | after:
            yield from _differences(f"{path}[{key}]", before.get(key), after.get(key))
    else:
        yield path, (_text(old), _text(new))


def _keyed(items: list[Any]) -> dict[Any, Any]:
    """Instance groups by their names, as UpdateCluster reads them, and everything else by its place."""
    return {
        one.get("instanceGroupName", place) if isinstance(one, Mapping) else place: one
        for place, one in enumerate(items)
    }


def _parsed(value: Any) -> Any:
    """A policy is compared by what it says."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _secret(value: Any) -> bool:
    """Whether it is a secret, or holds one anywhere."""
    if isinstance(value, Mapping):
        return value.get(MARK) == _SECRET_MARK or any(map(_secret, value.values()))
    return value == SECRET or (isinstance(value, list) and any(map(_secret, value)))


def _text(value: Any) -> str:
    if value is None:
        return _NONE
    if _secret(value):
        return SECRET
    text = value if isinstance(value, str) else json.dumps(_whole(value), ensure_ascii=False, default=str)
    if _UNKNOWN in text:
        return _LATER
    text = text if value != "" else '""'
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _whole(value: Any) -> Any:
    """The engines' protocol has no whole numbers but 7.0, which people write as 7."""
    if isinstance(value, Mapping):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

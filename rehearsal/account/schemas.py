"""Published schemas of types in CloudFormation's registry, from the copies that cfn-lint ships."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import botocore.session
import regex
from jsonschema import Draft7Validator, ValidationError, validators

from .books import Refused

# Every region has the same schema for these types; a region that cfn-lint lacks is read as this one.
_REGION = "us-east-1"


def published(path: str) -> Any:
    """One of cfn-lint's files, read without loading its code, which takes seconds."""
    return json.loads(Path(str(distribution("cfn-lint").locate_file(f"cfnlint/data/schemas/{path}"))).read_text())


@cache
def _files() -> dict[str, str]:
    found: dict[str, str] = published(f"providers/{_REGION}.json")
    return found


@cache
def schema(cfn_type: str) -> dict[str, Any]:
    """The registry's schema of a type."""
    found: dict[str, Any] = published(f"resources/{_files()[cfn_type]}.json")
    return found


def _pattern(_: Any, pattern: str, text: Any, __: Any) -> Iterator[ValidationError]:
    """The registry's patterns are Java's, with ``\\p{L}``, which Python's own ``re`` does not read."""
    if isinstance(text, str) and not regex.search(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


_Validator: Any = validators.extend(Draft7Validator, {"pattern": _pattern})


@cache
def _validator(cfn_type: str) -> Any:
    return _Validator(schema(cfn_type))


def replacing_properties(cfn_type: str) -> frozenset[str]:
    """Properties whose change replaces the resource, and parts of properties like ``Orchestrator/Eks``."""
    paths = (path.split("/")[2:] for path in schema(cfn_type).get("createOnlyProperties", []))
    return frozenset("/".join(path) for path in paths)


def unordered_properties(cfn_type: str) -> frozenset[str]:
    """Properties that are lists without an order."""
    root = schema(cfn_type)
    return frozenset(
        name for name, node in root["properties"].items() if _resolved(root, node).get("insertionOrder") is False
    )


def check_valid(cfn_type: str, properties: Mapping[str, Any]) -> None:
    """Raise Refused with every violation of the schema."""
    faults = [_sentence(error) for error in _validator(cfn_type).iter_errors(properties)]
    if faults:
        raise Refused("ValidationException", f"{cfn_type}: " + "; ".join(sorted(faults)))


def check_shape(service: str, shape_name: str, value: Mapping[str, Any]) -> None:
    """Raise Refused for values that botocore's model of a request does not allow; botocore itself checks only types."""
    model = botocore.session.get_session().get_service_model(service)
    faults = list(_shape_faults(model.shape_for(shape_name), value, ""))
    if faults:
        raise Refused("ValidationException", "; ".join(faults))


def _shape_faults(shape: Any, value: Any, path: str) -> Iterator[str]:
    if shape.type_name == "structure":
        for key, item in value.items():
            if key in shape.members:
                yield from _shape_faults(shape.members[key], item, f"{path}{key}.")
    elif shape.type_name == "list":
        for item in value:
            yield from _shape_faults(shape.member, item, path)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{path.rstrip('.')}: {value!r} is not one of {', '.join(shape.enum)}"


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error.absolute_path) or "the resource"
    if error.context:
        return f"{where}: " + ", or ".join(sorted({inner.message for inner in error.context}))
    return f"{where}: {error.message}"


def to_cloudformation(cfn_type: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """camelCase properties as the schema writes them; the keys of maps (labels, tags) stay as they are."""
    root = schema(cfn_type)
    return {k: v for k, v in _convert(root, root, value).items() if v is not None}


def _convert(root: dict[str, Any], node: dict[str, Any], value: Any) -> Any:
    node = _resolved(root, node)
    if isinstance(value, list):
        return [_convert(root, node.get("items", {}), item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, Mapping):
        return value
    properties = _properties(root, node)
    by_folded = {name.lower(): name for name in properties}
    converted = {}
    for key, item in value.items():
        name = by_folded.get(key.lower(), key)
        converted[name] = _convert(root, properties.get(str(name), {}), item)
    return {key: item for key, item in converted.items() if item is not None}


def _properties(root: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The properties of an object, those of its oneOf branches included."""
    found = dict(node.get("properties", {}))
    for branch in (*node.get("oneOf", []), *node.get("anyOf", [])):
        found |= _properties(root, _resolved(root, branch))
    return found


def _resolved(root: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        target: Any = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node

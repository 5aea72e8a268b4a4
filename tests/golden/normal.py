"""A deployment in a form that two runs share: ids and names that are made up become references to their owners."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pulumi import StringAsset

from operations.engine.state import PROVIDER_PREFIX, STACK_TYPE, ResourceState, State
from rehearsal.account import ACCOUNT_ID
from rehearsal.engines.autoname import NAMED
from rehearsal.engines.default_tags import TAGS_ALL, with_default_tags
from rehearsal.engines.deployment import Deployment
from tests.support import ROOT

MASK = "SECRET"
# Part of an id that AWS or a provider makes up: hexadecimal digits of which no two runs have the same.
_MADE_UP = re.compile(r"[0-9a-f]{7}", re.IGNORECASE)
_OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
_RULES = "aws:amp/ruleGroupNamespace:RuleGroupNamespace"
# The entry of all lifecycle objects that differ in their path alone.
FILES = "files BucketObjectv2"
_USUAL_PROVIDERS = ("aws", "aws-native")

# Component, resource, what there is to say of it.
Normal = dict[str, dict[str, Any]]


def normal(deployment: Deployment, given: str = "") -> Normal:
    """By component: every resource with inputs, what it waits for and options; the stack's outputs and warnings.

    ``given`` is the text of the configuration: ids that it has stay as they are.
    """
    state = deployment.state
    names = _Names(deployment, given)
    found: Normal = {"stack": _outputs(deployment, names)}
    for resource in state.values():
        if resource.type != STACK_TYPE:
            component = found.setdefault(_component(state, resource), {})
            component[names.key(resource)] = _told(resource, state, names)
    found["lifecycle"] = _objects_as_one(found["lifecycle"])
    return {component: dict(sorted(resources.items())) for component, resources in found.items()}


def brief(found: Normal) -> Normal:
    """As it is written down: without all tags of a resource, where they are its own on top of the provider's."""
    default = found["stack"]["aws aws"]["inputs"]["defaultTags"]["tags"]
    return {part: {key: _brief(told, default) for key, told in resources.items()} for part, resources in found.items()}


def _brief(told: Any, default: Mapping[str, str]) -> Any:
    if not (isinstance(told, dict) and with_default_tags(told.get("type", "::"), {}, {})):
        return told
    inputs = dict(told.get("inputs", {}))
    tags = inputs.pop(TAGS_ALL, "none")
    usual = {**default, **inputs.get("tags", {})}
    return {**told, "inputs": inputs if tags == usual else {**inputs, TAGS_ALL: tags}}


def _in_order(value: Any) -> Any:
    """Outputs come back from the engine with their keys in any order."""
    return {key: _in_order(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _outputs(deployment: Deployment, names: _Names) -> dict[str, Any]:
    outputs = {
        f"output {key}": MASK if key in deployment.secret_outputs else names.of(_in_order(value))
        for key, value in deployment.outputs.items()
    }
    # Whether the charts have been brought is no matter of the stack.
    warnings = [text for text in deployment.warnings if not text.startswith("charts/")]
    return {**outputs, "warnings": names.of(warnings)} if warnings else outputs


def _told(resource: ResourceState, state: State, names: _Names) -> dict[str, Any]:
    inputs = {key: MASK if key in resource.secrets else names.of(value) for key, value in resource.inputs.items()}
    if resource.type == _OBJECT:
        inputs["source"] = _content(resource, names)
    if resource.type == _RULES:
        inputs["data"] = _digests(inputs["data"])
    told: dict[str, Any] = {"type": resource.type}
    parent = state.get(resource.parent)
    if parent and parent.parent in state:
        told["parent"] = names.key(parent)
    # What an input refers to is waited for anyway, and so is what others of these wait for.
    seen = set(re.findall(r"\$\{([^.}]+)[.}]", json.dumps(inputs)))
    before = _before(state, resource)
    waits = [state[urn] for urn in resource.dependencies if urn in state]
    last = [one for one in waits if one.urn not in before and not one.type.startswith(PROVIDER_PREFIX)]
    after = {names.key(one) for one in last} - seen
    objects = {names.key(one) for one in state.values() if one.type == _OBJECT}
    if objects <= after:
        after = after - objects | {"every lifecycle object"}
    providers = {one.name for one in waits if one.type.startswith(PROVIDER_PREFIX)}
    told |= {
        "provider": ", ".join(sorted(providers.difference(_USUAL_PROVIDERS))),
        "after": sorted(after),
        "protect": resource.protect,
        "retainOnDelete": resource.retain,
        "deletedWith": names.key(state[resource.deleted_with]) if resource.deleted_with else "",
        "ignoreChanges": list(resource.ignore_changes),
        "deleteBeforeReplace": resource.delete_first,
        "options": sorted_keys(_own_options(resource)),
        "inputs": sorted_keys(inputs),
    }
    return {key: value for key, value in told.items() if value}


def _before(state: State, resource: ResourceState) -> set[str]:
    """What must be there before anything that a resource waits for: URNs."""
    found: set[str] = set()
    left = [urn for one in resource.dependencies if one in state for urn in state[one].dependencies]
    while left:
        if (urn := left.pop()) not in found and urn in state:
            found.add(urn)
            left += state[urn].dependencies
    return found


def _own_options(resource: ResourceState) -> dict[str, Any]:
    """The options without the SDK's aliases, which say that AWS's provider once had another name for the type."""
    options = dict(resource.options)
    aliases = [alias for alias in options.pop("aliases", []) if set(alias.get("spec", {})) != {"parentUrn", "type"}]
    return {**options, "aliases": aliases} if aliases else options


def _component(state: State, resource: ResourceState) -> str:
    """The component right below the stack that the resource belongs to."""
    while resource.parent in state:
        resource = state[resource.parent]
    return "stack" if resource.custom else resource.name


def _content(resource: ResourceState, names: _Names) -> Any:
    """A lifecycle object is its file in the repository, or what the program rendered."""
    text = resource.inputs["source"].text
    path = ROOT / resource.inputs["key"]
    return f"file {resource.inputs['key']}" if path.is_file() and path.read_text() == text else names.of(text)


def _digests(rules: str) -> dict[str, dict[str, str]]:
    """Of each group its rules, which are in components/alerts/ to be read, with a digest of what becomes of them."""
    return {
        group["name"]: {
            rule.get("alert") or rule["record"]: hashlib.sha256(json.dumps(rule).encode()).hexdigest()[:8]
            for rule in group["rules"]
        }
        for group in yaml.safe_load(rules)["groups"]
    }


def _objects_as_one(component: Mapping[str, Any]) -> dict[str, Any]:
    """Lifecycle objects that differ in their path alone, as one entry: which they are is a test's question."""
    rest: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, told in component.items():
        inputs = told.get("inputs", {})
        if told["type"] != _OBJECT or inputs["source"] != f"file {inputs['key']}":
            rest[key] = told
            continue
        common = {**told, "inputs": {k: v for k, v in inputs.items() if k not in ("source", "key")}}
        if shared and common != shared:
            rest[key] = told
        shared = shared or common
    return {**rest, FILES: shared}


class _Names:
    """The keys of one deployment's resources, and which made-up texts stand for them."""

    def __init__(self, deployment: Deployment, given: str) -> None:
        custom = [resource for resource in deployment.state.values() if resource.type != STACK_TYPE]
        doubles = Counter(_key(resource) for resource in custom)
        assert max(doubles.values()) == 1, doubles.most_common(1)
        name, bucket = deployment.outputs["clusterName"], deployment.outputs["lifecycleBucket"]
        digest = str(bucket).rsplit("-", 1)[1]
        texts = {str(name): "CLUSTER", digest: "DIGEST"}
        for made_up in (_ids, _computed):
            for resource in sorted(custom, key=_key):
                for text, reference in made_up(resource):
                    # Part of a made-up text may be the digest, or the account's number, which are not.
                    if text not in given and _MADE_UP.search(text.replace(ACCOUNT_ID, "").replace(digest, "")):
                        texts.setdefault(text, reference)
        self._texts = texts
        self._any = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))
        # Most texts have none of them, which is seen faster than by trying hundreds.
        self._sign = re.compile(f"{_MADE_UP.pattern}|{re.escape(str(name))}", re.IGNORECASE)

    def key(self, resource: ResourceState) -> str:
        """What a resource is called here."""
        return _key(resource)

    def of(self, value: Any) -> Any:
        """A value with references for what is made up, JSON texts as structures and assets as their text."""
        match value:
            case StringAsset():
                return self.of(value.text)
            case str():
                inside = structure(value)
                return self._named(value) if inside is None else self.of(inside)
            case Mapping():
                return {self._named(key): self.of(item) for key, item in value.items()}
            case list() | tuple():
                return [self.of(item) for item in value]
            case float() if value.is_integer():
                return int(value)
        return value

    def _named(self, text: str) -> str:
        return self._any.sub(lambda m: self._texts[m[0]], text) if self._sign.search(text) else text


def sorted_keys(value: Any) -> Any:
    """Mappings in the order of their keys, all the way down; lists as they are."""
    if isinstance(value, Mapping):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


def _key(resource: ResourceState) -> str:
    return f"{resource.name} {resource.type.rsplit(':', 1)[1]}"


def structure(text: str) -> Any:
    """A JSON object or list of a text, None where it is none."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _ids(resource: ResourceState) -> Iterator[tuple[str, str]]:
    """A resource's id, and the physical name that its provider made up."""
    yield resource.id, f"${{{_key(resource)}}}"
    name = str(resource.inputs.get(NAMED.get(resource.type, ""), ""))
    if re.fullmatch(rf"{re.escape(resource.name)}-[0-9a-f]{{7}}", name):
        yield name, f"{resource.name}-*"


def _computed(resource: ResourceState) -> Iterator[tuple[str, str]]:
    """What AWS computed for a resource: what the program said is no output of its own."""
    said = {text for _, text in _texts_of("", resource.inputs)}
    for path, text in _texts_of("", resource.outputs):
        if text not in said:
            yield text, f"${{{_key(resource)}{path}}}"


def _texts_of(path: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case Mapping():
            for key, item in value.items():
                yield from _texts_of(f"{path}.{key}", item)
        case list() | tuple():
            for number, item in enumerate(value):
                yield from _texts_of(f"{path}[{number}]", item)

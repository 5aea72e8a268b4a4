"""A provider's default tags on its resources, merged as pulumi-aws does before it calls AWS."""

import importlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

# An input of every taggable type in pulumi-aws. The provider itself fills it in (pulumi-aws, provider/tags.go).
TAGS_ALL = "tagsAll"


def default_tags(provider: Mapping[str, Any]) -> dict[str, str]:
    """The default tags in a provider's inputs, which carry anything but strings as JSON."""
    given = provider.get("defaultTags")
    settings = json.loads(given) if isinstance(given, str) else given
    return dict((settings or {}).get("tags") or {})


def takes_over(provider: Mapping[str, Any]) -> bool:
    """Whether a provider's inputs say that objects which are there already are taken over."""
    return provider.get("upsertExistingObjects") in (True, "true")


def with_default_tags(token: str, inputs: dict[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """Inputs with all tags of the resource. An object that overrides the default tags with none gets only its own
    (terraform-provider-aws, internal/service/s3/object.go, ignoreProviderDefaultTags)."""
    if not _takes_tags(token):
        return inputs
    overridden = (inputs.get("overrideProvider") or {}).get("defaultTags")
    laid = {} if overridden is not None and not overridden.get("tags") else defaults
    return {**inputs, TAGS_ALL: {**laid, **(inputs.get("tags") or {})}}


@cache
def _takes_tags(token: str) -> bool:
    """Whether pulumi-aws tags this type, according to its class."""
    package, module, name = token.split(":")
    if package != "aws":
        return False
    found = getattr(importlib.import_module(f"pulumi_aws.{module.split('/')[0]}"), name, None)
    return hasattr(found, "tags_all")

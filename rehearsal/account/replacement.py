"""Which changed inputs replace a resource: a table from the providers' sources, ``replacement.csv``.

``replaces`` names inputs whose change replaces the resource, with ``/`` before a part of one; with ``:less`` only a
smaller value or none replaces it, with ``:presence`` only adding or removing it. ``updates`` names the inputs that
change in place. Sources: ``CFN X`` are the create-only properties of ``AWS::X`` in CloudFormation's registry, ``TF
file`` is ``internal/service/file`` of github.com/hashicorp/terraform-provider-aws, from which pulumi-aws is built
(``ForceNew``, ``RequiresReplace``), in some rows at a given commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from components.catalogue import rows
from components.catalogue.rows import WordSet

# Every provider changes tags in place.
_TAGS = frozenset({"tags", "tagsAll"})


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What the provider does with each input of one type that changes."""

    type: str
    replaces: WordSet = frozenset()
    updates: WordSet = frozenset()
    source: str

    def knows(self, name: str) -> bool:
        """Whether the table says what a change of this input does."""
        named = {path.split(":")[0].split("/")[0] for path in self.replaces}
        return name in named | self.updates | _TAGS


@cache
def table() -> Mapping[str, Replacement]:
    """The rows by type token."""
    return rows.table(Path(__file__).with_name("replacement.csv"), Replacement, "type")


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """The inputs that differ; None and a missing value are equal."""
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def replacing(paths: frozenset[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """The inputs whose change replaces the resource, by their top-level names."""
    found = set()
    for rule in paths:
        path, _, when = rule.partition(":")
        before, after = _at(old, path), _at(new, path)
        if before != after and _applies(when, before, after):
            found.add(path.split("/")[0])
    return found


def _applies(when: str, before: Any, after: Any) -> bool:
    if when == "presence":
        return (before is None) != (after is None)
    if when == "less":
        numbers = isinstance(before, (int, float)) and isinstance(after, (int, float))
        return after < before if numbers else before is not None and after is None
    return True


def _at(value: Any, path: str) -> Any:
    for part in path.split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value

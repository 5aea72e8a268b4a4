"""Kinds of resources: what creates, changes and deletes each resource type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .books import Books, Inputs, Live
from .replacement import differing, replacing, table

Create = Callable[[Books, Inputs], tuple[str, dict[str, Any]]]
Change = Callable[[Books, Live, Inputs], dict[str, Any]]
Delete = Callable[[Books, Live], None]
Check = Callable[[Inputs], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A resource type.

    ``fixed``: the inputs whose change makes a new resource, as ``replacement.replacing`` reads them; None for what
    pulumi-aws deploys, whose rows are in ``replacement.csv``. Without ``update`` nothing but tags changes in place.
    ``check`` says what the provider itself refuses, even in a preview, without asking AWS.
    """

    token: str
    create: Create
    delete: Delete
    update: Change | None = None
    fixed: frozenset[str] | None = None
    check: Check = lambda inputs: ()

    def replaces(self, old: Inputs, new: Inputs) -> set[str]:
        """The inputs whose change makes a new resource. Raises LookupError if the table has no answer."""
        if self.fixed is not None:
            return replacing(self.fixed, old, new)
        row = table().get(self.token)
        if unknown := sorted(key for key in differing(old, new) if row is None or not row.knows(key)):
            raise LookupError(
                f"replacement.csv does not say what a change of {', '.join(unknown)} does to {self.token}"
            )
        assert row is not None, "a type without a row knows nothing"
        return replacing(row.replaces, old, new)


def after_update(outputs: Inputs, old: Inputs, new: Inputs) -> dict[str, Any]:
    """Outputs once the inputs are ``new`` instead of ``old``: what AWS computed stays, inside of inputs too."""
    kept = {key: value for key, value in outputs.items() if key not in old or key in new}
    for key, value in new.items():
        before, given = kept.get(key), old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and isinstance(given, Mapping):
            value = {**{part: before[part] for part in before.keys() - given.keys()}, **value}
        kept[key] = value
    return kept


KINDS: dict[str, Kind] = {}
_FAMILIES: list[Callable[[str], Kind | None]] = []


def register(kind: Kind) -> None:
    """Make a type known to every account."""
    KINDS[kind.token] = kind


def family(find: Callable[[str], Kind | None]) -> None:
    """Make a family of types known; ``find`` returns the kind of a member."""
    _FAMILIES.append(find)


def provider_refuses(token: str, inputs: Inputs) -> list[str]:
    """Why the type's provider refuses these inputs before it asks AWS; values may still be unknown."""
    kind = find_kind(token)
    return list(kind.check(inputs)) if kind else [f"the embedded account does not know {token}"]


def find_kind(token: str) -> Kind | None:
    """The kind of a type, or None."""
    if token in KINDS:
        return KINDS[token]
    return next((kind for find in _FAMILIES if (kind := find(token))), None)


def release(account: Books, type_token: str, resource_id: str) -> None:
    """Delete a resource that AWS created by itself, together with its cause."""
    KINDS[type_token].delete(account, account.live[type_token, resource_id])
    del account.live[type_token, resource_id]

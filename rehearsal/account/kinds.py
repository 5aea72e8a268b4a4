"""Kinds of resources: how each resource type is created, changed and deleted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from .books import Books, Inputs, Live
from .replacement import differing, replacing, table

Create = Callable[[Books, Inputs], tuple[str, dict[str, Any]]]
Change = Callable[[Books, Live, Inputs], dict[str, Any]]
Delete = Callable[[Books, Live], None]
Check = Callable[[Inputs], Sequence[str]]


@dataclass(frozen=True)
class Kind:
    """A resource type.

    ``fixed``: the inputs whose change replaces the resource, as paths for ``replacement.replacing``; None for types of
    pulumi-aws, whose rows are in ``replacement.csv``. Without ``update``, only tags change in place. ``check`` returns
    what the provider itself refuses, even in a preview, without calling AWS. ``unordered`` names the inputs whose lists
    AWS may return in another order (``insertionOrder`` is false in CloudFormation's registry).
    """

    token: str
    create: Create
    delete: Delete
    update: Change | None = None
    _: KW_ONLY
    fixed: frozenset[str] | None = None
    check: Check = lambda inputs: ()
    unordered: frozenset[str] = frozenset()

    def differing(self, old: Inputs, new: Inputs) -> set[str]:
        """The inputs that differ. Another order alone is no difference (pulumi/pulumi-aws-native, pull request 3083, in
        its releases since 1.73.0)."""
        return {
            key
            for key in differing(old, new)
            if key not in self.unordered or _sorted(old.get(key)) != _sorted(new.get(key))
        }

    def described(self, inputs: Inputs) -> dict[str, Any]:
        """The inputs as AWS returns them: always in another order, where it may choose one."""
        return {
            key: value[::-1] if key in self.unordered and isinstance(value, list) else value
            for key, value in inputs.items()
        }

    def replaces(self, old: Inputs, new: Inputs) -> set[str]:
        """The inputs whose change replaces the resource. Raises LookupError if the table does not say."""
        if self.fixed is not None:
            return replacing(self.fixed, old, new)
        row = table().get(self.token)
        if unknown := sorted(key for key in differing(old, new) if row is None or not row.knows(key)):
            raise LookupError(
                f"replacement.csv does not say what a change of {', '.join(unknown)} does to {self.token}"
            )
        assert row is not None, "a type without a row knows nothing"
        return replacing(row.replaces, old, new)


def delete_by(service: str, operation: str, name: str) -> Delete:
    """Delete by one call, whose parameter of this name is the resource's id, or a list of it where it is a plural."""

    def delete(account: Books, live: Live) -> None:
        getattr(account.client(service), operation)(**{name: [live.id] if name.endswith("s") else live.id})

    return delete


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return sorted((_sorted(one) for one in value), key=repr) if isinstance(value, list) else value


def after_update(outputs: Inputs, old: Inputs, new: Inputs) -> dict[str, Any]:
    """The outputs after the inputs change from ``old`` to ``new``: computed values stay, also inside inputs."""
    kept = {key: value for key, value in outputs.items() if key not in old or key in new}
    for key, value in new.items():
        before, given = kept.get(key), old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping) and isinstance(given, Mapping):
            value = {**{part: before[part] for part in before.keys() - given.keys()}, **value}
        kept[key] = value
    return kept


KINDS: dict[str, Kind] = {}
_FAMILIES: list[Callable[[str], Kind | None]] = []


def register(*kinds: Kind) -> None:
    """Make types known to every account."""
    KINDS.update({kind.token: kind for kind in kinds})


def family(find: Callable[[str], Kind | None]) -> None:
    """Make a family of types known; ``find`` returns the kind of a member."""
    _FAMILIES.append(find)


def provider_refuses(token: str, inputs: Inputs) -> list[str]:
    """Why the type's provider refuses these inputs before it calls AWS; values may still be unknown."""
    kind = find_kind(token)
    return list(kind.check(inputs)) if kind else [f"the embedded account does not know {token}"]


def find_kind(token: str) -> Kind | None:
    """The kind of a type, or None."""
    if token in KINDS:
        return KINDS[token]
    return next((kind for find in _FAMILIES if (kind := find(token))), None)


def release(account: Books, type_token: str, resource_id: str) -> None:
    """Delete a resource that AWS created by itself for another one that is being deleted."""
    KINDS[type_token].delete(account, account.live[type_token, resource_id])
    del account.live[type_token, resource_id]

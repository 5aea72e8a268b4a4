"""Golden files: written for reviewers, read back, and compared with a short report."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
GONE, LIKE = "gone", "like"
# An entry is told by what differs from another where that takes a part of the text, and the text more than a line.
_WORTH = 0.6
_WIDTH = 120
_MOST_LINES = 12

# File (without its ending), entry, content.
Files = Mapping[str, Mapping[str, Any]]


def difference(files: Files, base: Files) -> dict[str, dict[str, Any]]:
    """What differs from a base, key by key, or by the number of an item in a list; what only the base has is ``gone``.

    An entry that is nearly another one of its file and type is ``like`` that one, with what differs from it.
    """
    found = {name: _changed(files.get(name, {}), base.get(name, {})) for name in sorted({*files, *base})}
    return {name: _alike(entries, files.get(name, {})) for name, entries in found.items() if entries}


def _changed(now: Any, was: Any) -> Any:
    if isinstance(now, Mapping) and isinstance(was, Mapping):
        pairs = {key: (now.get(key, GONE), was.get(key, GONE)) for key in sorted({*now, *was})}
    elif _are_records(now) and _are_records(was):
        pairs = dict(enumerate(zip_longest(now, was, fillvalue=GONE)))
    else:
        return now
    changes = {key: _changed(*pair) for key, pair in pairs.items() if pair[0] != pair[1]}
    # Where an item came in between, its number would stand for another one in all that follow.
    shifted = isinstance(now, list) and len(now) != len(was) and len(str(changes)) >= _WORTH * len(str(now))
    return now if shifted else changes


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _alike(changes: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(changes)
    for key, told in changes.items():
        models = [
            name for name in entries if name < key and _same(name, key, entries) and LIKE not in found.get(name, {})
        ]
        alike = [{LIKE: name, **_changed(entries[key], entries[name])} for name in models]
        shortest = min(alike, key=lambda one: len(str(one)), default=told)
        if len(str(shortest)) < _WORTH * len(str(told)) and len(str(told)) > _WIDTH:
            found[key] = shortest
    return found


def _same(name: str, key: str, entries: Mapping[str, Any]) -> bool:
    """Whether both are resources of one type, or objects of one kind."""
    found = [entries.get(one) for one in (name, key)]
    types = [isinstance(one, Mapping) and (one.get("type") or one.get("kind")) for one in found]
    return bool(types[0]) and types[0] == types[1]


def whole(changes: Files, base: Files) -> dict[str, dict[str, Any]]:
    """The files from which ``difference`` made these changes."""
    found = {name: _entries(changes.get(name, {}), base.get(name, {})) for name in {*base, *changes}}
    return {name: entries for name, entries in found.items() if entries}


def _entries(changes: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    together = dict(base)
    for key, now in changes.items():
        if isinstance(now, Mapping) and LIKE in now:
            rest = {part: value for part, value in now.items() if part != LIKE}
            together[key] = _more(rest, together[now[LIKE]])
        else:
            together[key] = _more(now, together.get(key))
    return {key: value for key, value in together.items() if value != GONE}


def _more(now: Any, was: Any) -> Any:
    if isinstance(now, Mapping) and _are_records(was) and all(isinstance(key, int) for key in now):
        return list(_more(now, dict(enumerate(was))).values())
    if not (isinstance(now, Mapping) and isinstance(was, Mapping)):
        return now
    together = {**was, **{key: _more(value, was.get(key)) for key, value in now.items()}}
    return {key: value for key, value in together.items() if value != GONE}


def write(folder: Path, files: Files, title: str) -> None:
    """Write one YAML file each, and delete all others in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.yaml"):
        path.unlink()
    for name, entries in files.items():
        text = yaml.dump(dict(entries), Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
        (folder / f"{name}.yaml").write_text(f"# {title}\n{text}")


@cache
def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Every file of a folder. Read once, for those that look at it."""
    return {path.stem: yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in sorted(folder.glob("*.yaml"))}


def told(golden: Files, now: Files) -> str:
    """What differs, one line each with its file, or nothing."""
    lines = [
        f"{name}: {entry}{path}: {said}"
        for name in sorted({*golden, *now})
        for entry in dict.fromkeys([*golden.get(name, {}), *now.get(name, {})])
        for path, said in _differing("", golden.get(name, {}).get(entry), now.get(name, {}).get(entry))
    ]
    if not lines:
        return ""
    more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return "\n".join(
        [
            *lines[:_MOST_LINES],
            *more,
            "If this is intended, run `make golden` and review the diff.",
        ]
    )


def _differing(path: str, golden: Any, now: Any) -> Iterator[tuple[str, str]]:
    if golden == now:
        return
    if isinstance(golden, Mapping) and isinstance(now, Mapping):
        for key in sorted({*golden, *now}):
            yield from _differing(f"{path} {key}", golden.get(key), now.get(key))
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        for number, (before, after) in enumerate(zip(golden, now, strict=True)):
            yield from _differing(f"{path}[{number}]", before, after)
    elif isinstance(golden, list) and isinstance(now, list):
        lost, new = [one for one in golden if one not in now], [one for one in now if one not in golden]
        yield path, " ".join([f"lost {_short(lost)}"] * bool(lost) + [f"new {_short(new)}"] * bool(new) or ["doubles"])
    else:
        yield path, f"golden {_short(golden)}, now {_short(now)}"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


class _Dumper(yaml.SafeDumper):
    """Writes what fits on a line on one line, multi-line strings as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def serialize(self, node: yaml.Node) -> None:
        _fold(node, 0, 0)
        super().serialize(node)


def _fold(node: yaml.Node, indent: int, start: float) -> None:
    """Write a node on one line where it fits behind ``start`` columns, else its parts below, after ``indent``."""
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = start + _length(node) <= _WIDTH
        for child in [] if node.flow_style else node.value:
            key, value = child if isinstance(child, tuple) else (None, child)
            below = indent + 2 * (key is None or isinstance(value, yaml.MappingNode))
            _fold(value, below, indent + _length(key) + 2 if key else below)


def _length(node: yaml.Node) -> float:
    """The columns that a node takes on one line with its quotes, no end where it has lines of its own."""
    if isinstance(node, yaml.MappingNode):
        return 2 + sum(_length(key) + _length(value) + 4 for key, value in node.value)
    if isinstance(node, yaml.SequenceNode):
        return 2 + sum(_length(item) + 2 for item in node.value)
    return inf if "\n" in node.value else len(node.value) + 2 * (not node.value.isalnum())


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)

"""YAML, by libyaml, which is ten times as fast as PyYAML's own code; PyYAML's wheels include it."""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    """Parse a text's only document. Raises yaml.YAMLError."""
    return yaml.load(text, _LOADER)


def compose(text: str) -> yaml.Node | None:
    """Parse a text into nodes, which know their lines; None for an empty text. Raises yaml.YAMLError."""
    node: yaml.Node | None = yaml.compose(text, _LOADER)
    return node


def load_all(text: str) -> list[Any]:
    """Parse a text's documents, without empty ones. Raises yaml.YAMLError."""
    return [document for document in yaml.load_all(text, _LOADER) if document]


def dump(document: Any, width: int = 80) -> str:
    """Write a document as text, its keys in their order."""
    return str(yaml.dump(document, Dumper=_DUMPER, sort_keys=False, width=width))

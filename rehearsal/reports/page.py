"""One self-contained HTML page from a template: no network, one style for every page of the rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_REHEARSAL = Path(__file__).parent.parent


def write_page(
    template: str, context: Mapping[str, Any], path: Path, filters: Mapping[str, Callable[..., str]] | None = None
) -> None:
    """Render a template, named by its path below this package, to a file."""
    path.write_text(_template(template, tuple((filters or {}).items())).render(context), encoding="utf-8")


@cache
def _template(name: str, filters: tuple[tuple[str, Callable[..., str]], ...]) -> Template:
    # Autoescape is forced: jinja2's usual choice goes by suffix and would leave a ".j2" template unescaped.
    environment = Environment(
        loader=FileSystemLoader(_REHEARSAL),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)

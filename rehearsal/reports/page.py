"""One self-contained HTML page from a template: no network, one style for every page of the rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_REHEARSAL = Path(__file__).parent.parent


def write_page(
    template: str, context: Mapping[str, Any], path: Path, filters: Mapping[str, Callable[..., str]] | None = None
) -> None:
    """Render a template, named by its path below this package, to a file. Creates missing folders."""
    # Autoescape is forced: jinja2's usual choice goes by suffix and would leave a ".j2" template unescaped.
    environment = Environment(
        loader=FileSystemLoader(_REHEARSAL),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(environment.get_template(template).render(context), encoding="utf-8")

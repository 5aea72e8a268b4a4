"""One self-contained HTML page from a template, which needs no network."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from operations.files import write

_REHEARSAL = Path(__file__).parent.parent
# What a row's kind is where colours are not seen.
_MARKS = {"critical": "◆ ", "failed": "✗ "}
_SEPARATORS = re.compile(r"(?<=[/_.])(?=\w)")


def write_page(
    template: str, context: Mapping[str, Any], path: Path, filters: Mapping[str, Callable[..., str]] | None = None
) -> None:
    """Render a template, named by its path below this package, to a file."""
    write(path, _template(template, tuple((filters or {}).items())).render(context))


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
    environment.globals["marks"] = defaultdict(str, _MARKS)
    environment.filters.update(filters)
    environment.filters["breakable"] = _breakable
    environment.filters["code"] = _code
    return environment.get_template(name)


def _code(text: str) -> Markup:
    """Words with commands between backticks, which terminals and pages show differently."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _breakable(name: str) -> Markup:
    """A name that may be broken where its words end; browsers know that of hyphens only."""
    return Markup("<wbr>").join(_SEPARATORS.split(name))

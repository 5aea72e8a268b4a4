"""The rehearsal's result as one HTML page: the verdict, cost and quotas, a timeline, what changes did.

This module says what the page shows, and ``report.html.j2`` draws it. The page needs no network and works without
scripts, so it can be attached to a change request, archived or printed.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from components.catalogue.prices import HOURS_PER_MONTH
from components.common.names import readable
from operations.files import write

from .resources import TOP_LEVEL, Node, critical_nodes, read
from .timeline import axis, timeline
from .words import clock, money, monthly, plain

__all__ = ["write_report"]

ACCELERATED = re.compile(r"\b(?:gr?|p|trn|inf|dl)\d+[a-z]*(?:-\w+)?\.(?:\d*x?large|metal)")
# What is asked for first, and may be refused: the others have defaults that suffice for one cluster.
_FIRST_QUOTAS = 5
_LONG_LIST = 8
# What a row's kind is where colours are not seen.
_MARKS = {"critical": "◆ ", "failed": "✗ "}
_SEPARATORS = re.compile(r"(?<=[/_.])(?=\w)")
_OPERATIONS = {"created": "create", "updated": "update", "replaced": "replace", "deleted": "delete"}


def write_report(result: Mapping[str, Any], path: Path) -> None:
    """Writes the rehearsal's result to `path` as one self-contained HTML page."""
    write(path, _template().render(_page(result)))


@cache
def _template() -> Template:
    # Autoescape is forced: jinja2's usual choice goes by suffix and would leave a ".j2" template unescaped.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["marks"] = defaultdict(str, _MARKS)
    environment.filters |= {"clock": clock, "money": money, "monthly": monthly}
    environment.filters |= {"breakable": _breakable, "code": _code}
    return environment.get_template("report.html.j2")


def _code(text: str) -> Markup:
    """Words with commands between backticks, which terminals and pages show differently."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _breakable(name: str) -> Markup:
    """A name that may be broken where its words end; browsers know that of hyphens only."""
    return Markup("<wbr>").join(_SEPARATORS.split(name))


def _page(result: Mapping[str, Any]) -> dict[str, Any]:
    """The template's variables."""
    # What failed may be in the account or not; its own entry says which operation it was.
    failed = [one | {"failed": one.get("operation"), "operation": ""} for one in result.get("failed") or []]
    made = {one["urn"] for one in result.get("resources") or []}
    resources = {one["urn"]: one for one in [*(result.get("resources") or []), *failed]}
    nodes, groups = read(list(resources.values()))
    critical = critical_nodes(nodes, result.get("critical_path") or [])
    total = float(result.get("total_seconds") or max((node.finish for node in nodes), default=0.0))
    cluster = float((result.get("cluster") or {}).get("seconds") or total)
    on = axis(max([total, *(node.finish for node in nodes)]))
    quotas = sorted(result.get("quotas") or [], key=lambda one: one.get("service") != "sagemaker")
    return {
        "title": result.get("title") or "",
        "stack": result.get("stack") or "",
        "region": result.get("region") or "",
        "verdict": _verdict(result, nodes),
        "resource_count": sum(node.failed != "create" for node in nodes),
        "half_made": sum(one["failed"] == "create" and one["urn"] in made for one in failed),
        "added": sum(_count(one, "created") - _count(one, "deleted") for one in result.get("changes") or []),
        "component_count": sum(1 for group in groups if group.label != TOP_LEVEL),
        "total_seconds": total,
        "cluster_seconds": cluster,
        "critical": [
            {
                "name": node.name,
                "seconds": node.finish - node.start,
                "later": node.finish > cluster,
                "failed": bool(node.failed),
                "bar": on.bar(node.start, node.finish, "failed" if node.failed else "critical"),
            }
            for node in critical
        ],
        "axis": on,
        "timeline": timeline(groups, on),
        "any_failed": any(node.failed for node in nodes),
        "cost": _cost(result.get("cost") or {}),
        "quotas": quotas[:_FIRST_QUOTAS],
        "more_quotas": quotas[_FIRST_QUOTAS:],
        "changes": [_change(number, one) for number, one in enumerate(result.get("changes") or [], start=1)],
        "outputs": [(name, plain(value)) for name, value in readable(result.get("outputs") or {}).items()],
        "warnings": [plain(warning) for warning in result.get("warnings") or []],
        "destroyed": result.get("destroyed"),
        "retained": len(result.get("retained") or []),
        "leftovers": [plain(leftover) for leftover in result.get("leftovers") or []],
    }


def _verdict(result: Mapping[str, Any], nodes: Sequence[Node]) -> dict[str, Any]:
    """How the rehearsal ended: what went wrong first, what to do about it, what else failed, and when."""
    failures = [plain(failure) for failure in result.get("failures") or []]
    cause = plain(result.get("cause") or "")
    refused = any(change.get("refused") is not None for change in result.get("changes") or [])
    at = [node.finish for node in nodes if node.failed and node.failed != "delete"]
    return {
        "passed": not (failures or refused or result.get("leftovers")),
        "cause": cause,
        "next_step": plain(result.get("next_step") or ""),
        "more": plain(result.get("more") or ""),
        "others": [failure for failure in failures if failure != cause],
        "failed_at": min(at, default=None),
    }


def _count(change: Mapping[str, Any], word: str) -> int:
    """How many resources were created, and so on. Parts of one thing share a name, which the lists have once."""
    made = [one for one in change.get("resources") or [] if not one.get("failed")]
    return sum(one.get("operation") == _OPERATIONS[word] for one in made)


def _change(number: int, change: Mapping[str, Any]) -> dict[str, Any]:
    """One update of the deployed stack: what was asked, what it does, what it costs, and its own timeline."""
    nodes, groups = read(change.get("resources") or [])
    seconds = float(change.get("seconds") or 0.0)
    on = axis(max([seconds, *(node.finish for node in nodes)]))
    lists = [(word, list(change.get(word) or []), _count(change, word)) for word in _OPERATIONS]
    return {
        "number": number,
        "settings": [f"{key} = {plain(value)}" for key, value in (change.get("set") or {}).items()],
        "refused": None if change.get("refused") is None else plain(change["refused"]),
        "early": bool(change.get("early")),
        "seconds": seconds,
        "more": _more(change.get("hourly_usd", 0.0)),
        "lost": list((change.get("lost") or {}).items()),
        "lists": [(word, names[:_LONG_LIST], len(names), count) for word, names, count in lists if names],
        "axis": on,
        "timeline": timeline(groups, on),
    }


def _more(hourly: float | None) -> tuple[str, str]:
    """A change's price difference: the figure, and what follows it."""
    if hourly is None:
        return "price unknown", "of what differs"
    return f"{'-' if hourly < 0 else '+'}{money(abs(hourly))}", "an hour"


def _cost(cost: Mapping[str, Any]) -> dict[str, Any]:
    """The hourly price split into parts, accelerators first and then by size. What is unknown is no figure."""
    hourly, monthly_usd, accelerator = (cost.get(f"{one}_usd") for one in ("hourly", "monthly", "accelerator_hourly"))
    estimates, bounded = cost.get("estimates") or {}, cost.get("at_most") or ()
    words = cost.get("words") or ("price unknown" if hourly is None else f"{money(hourly)} an hour")
    parts = []
    for name, value in (cost.get("parts") or {}).items():
        guess = (estimates.get(name) or {}).get("hourly_usd")
        usd, mark = (value, "≤" if name in bounded else "") if value is not None else (guess, "≈")
        parts.append(
            {
                "name": name,
                "usd": usd or 0.0,
                "hour": "unknown" if usd is None else mark + (money if value is not None else monthly)(usd),
                "month": "unknown" if usd is None else mark + monthly(usd * HOURS_PER_MONTH),
                "accelerated": accelerator != 0 and bool(ACCELERATED.search(name)),
            }
        )
    parts.sort(key=lambda part: (not part["accelerated"], -part["usd"]))
    return {
        "words": words,
        # The verdict has room for a figure: the whole sentence is at the table.
        "short": money(cost.get("at_least_usd") or 0.0 if hourly is None else hourly),
        "mark": "at least " if hourly is None else "at most " if bounded else "",
        "known": hourly is not None,
        "monthly": monthly(monthly_usd or 0.0),
        "accelerator_share": (accelerator or 0.0) / hourly if hourly else 0.0,
        "parts": parts,
        "notes": [plain(note) for note in cost.get("notes") or []],
    }

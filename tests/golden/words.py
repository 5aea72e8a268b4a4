"""What configurations imply and what they are refused for: prices, quotas, endpoints, and every problem's words."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from components.config import ConfigError
from components.estimates import cost, quotas
from components.estimates.endpoints import interface_services
from tests.golden.stacks import GOLDEN
from tests.support import config

ESTIMATES, REFUSALS = Path(__file__).parent / "estimates", Path(__file__).parent / "refusals"
# Each has its cases in BAD.
_REFUSED = ("config", "kubernetes", "network_and_storage", "observability", "people", "workers")


def estimates() -> dict[str, dict[str, Any]]:
    """What each golden configuration costs, needs of quotas, and calls."""
    found = {}
    for name, chosen in GOLDEN.items():
        made = config(chosen.stack, **chosen.settings)
        priced = cost.estimate(made)
        found[name] = {
            "cost": {part: round(usd, 4) for part, usd in priced.parts.items()},
            "accelerators": round(priced.accelerator_hourly_usd, 4),
            "notes": list(priced.notes),
            "quotas": [quota.as_json() for quota in quotas.needed(made)],
            "endpoints": list(interface_services(made)),
        }
    return found


def refusals() -> dict[str, dict[str, Any]]:
    """Everything that the tests' bad configurations are told, by the subject and the name of the case."""
    found: dict[str, dict[str, Any]] = {}
    for subject in _REFUSED:
        cases = import_module(f"tests.components.config.test_{subject}").BAD
        found[subject] = {name: _told(settings) for name, (settings, _, _) in cases.items()}
    return found


def _told(settings: dict[str, Any]) -> list[str]:
    try:
        config("dev", **settings)
    except ConfigError as refused:
        return sorted(str(problem) for problem in refused.problems)
    return []

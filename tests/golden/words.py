"""What configurations imply and what they are refused for: prices, quotas, endpoints, and every problem's words."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from components.estimates import cost, quotas
from tests.components.config.refusals import told
from tests.golden.files import difference
from tests.golden.stacks import GOLDEN, WRITTEN
from tests.support import config

ESTIMATES, REFUSALS = Path(__file__).parent / "estimates", Path(__file__).parent / "refusals"
# The tests that have bad cases, in BAD: by their names what is bad. That is a configuration; where it is anything else,
# the module's own ``told`` has all that is said of it. A case that its name describes in full may be the name alone.
_REFUSED = (
    "accounting.checks",
    "config.change_checks",
    "config.config",
    "config.secrets",
    "health.own_checks",
    "kubernetes.charts",
    "kubernetes.checks",
    "kubernetes.versions",
    "network.endpoint_zones",
    "network.network_and_storage",
    "observability.checks",
    "observability.existing_workspaces",
    "people.checks",
    "security.bucket_writers",
    "security.encryption",
    "slurm.conf_folder",
    "slurm.container_packages",
    "workers.checks",
)


def estimates() -> dict[str, dict[str, Any]]:
    """What each golden configuration costs, needs of quotas, and calls, less what its base does too."""
    found: dict[str, dict[str, Any]] = {}
    for name in WRITTEN:
        made = config(GOLDEN[name].stack, **GOLDEN[name].settings)
        priced = cost.estimate(made)
        found[name] = {
            "cost": {
                name: round(part.least, 4) if part.known else part.figure(4) for name, part in priced.parts.items()
            },
            "accelerators": None if (usd := priced.accelerator_hourly_usd) is None else round(usd, 4),
            **({} if priced.whole.known else {"words": priced.words}),
            **({"warnings": list(priced.warnings)} if priced.warnings else {}),
            "notes": list(priced.notes),
            "quotas": [quota.as_json() for quota in quotas.needed(made)],
            "endpoints": list(made.settings.interface_services),
        }
    bases = {name: found.get(GOLDEN[name].base, {}) for name in found}
    return {name: difference({name: one}, {name: bases[name]}).get(name, {}) for name, one in found.items()}


def refusals() -> dict[str, dict[str, Any]]:
    """Everything that the tests' bad cases are told, by the subject and the name of the case."""
    found: dict[str, dict[str, Any]] = {}
    for name in _REFUSED:
        folder, _, subject = name.rpartition(".")
        module = import_module(f"tests.components.{folder}.test_{subject}")
        tells, bad = getattr(module, "told", told), module.BAD
        cases = bad if isinstance(bad, Mapping) else dict(zip(bad, bad, strict=True))
        found[folder if subject == "checks" else subject] = {case: tells(bad) for case, bad in cases.items()}
    return found


def unlisted(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """As it is written down: a single problem without the list that it is in."""
    return {
        subject: {case: said[0] if len(said) == 1 else said for case, said in cases.items()}
        for subject, cases in found.items()
    }

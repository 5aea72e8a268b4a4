"""The register of assumptions: what this project relies on and only a real cluster can prove, each with its probe.

What a deployment, a boot or `validate` itself reports by its name where it is wrong has no row.

The rows are in the YAML files beside this one. A row says what is assumed, on which source, how certain that is, which
read-only question settles it, what shows that it is wrong, and what to change then. Tests read its probe's answer from
its sample.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from components.common.documents import load
from components.config import Config

FOLDER = Path(__file__).parent

Result = Literal["confirmed", "refuted", "unknown"]
# documented: an AWS guide or reference says so, but we have not seen it. reported: public records of real clusters show
# it. disputed: sources disagree. unknown: no source says; the code takes the safe side.
Sure = Literal["documented", "reported", "disputed", "unknown"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Probe(_Strict):
    """A read-only question, and how to read its answer.

    It goes to a node (``node`` is a role, or any; ``command`` is a shell command), to AWS (``api`` is boto3's client
    and method), to Kubernetes (``kubernetes`` is nodes or pods) or to the stack's
    Prometheus workspace (``prometheus`` is an expression in PromQL). ``find`` is a JMESPath expression that selects the
    relevant part of any answer but a node's. ``{cluster}`` and the like in
    commands, arguments and expressions are replaced. An answer that matches neither regular expression settles nothing.
    """

    node: Literal["", "any", "controller", "login", "worker"] = ""
    command: str = ""
    api: str = ""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    kubernetes: Literal["", "nodes", "pods"] = ""
    prometheus: str = ""
    find: str = ""
    confirmed: str
    refuted: str

    def read(self, text: str) -> Result:
        """The verdict of an answer. An answer that matches both expressions settles nothing."""
        said = [bool(re.search(pattern, text, re.MULTILINE)) for pattern in (self.confirmed, self.refuted)]
        return "unknown" if said[0] == said[1] else "confirmed" if said[0] else "refuted"


class Assumption(_Strict):
    """A row.

    ``sample`` is an answer that confirms it: a node's output, or another answer before ``find``. ``only`` limits it to
    some stacks: by a setting's value (true for any), or that of any worker group (``workers.KEY``), or a pattern of
    worker types or of the region.
    """

    id: str
    claim: str
    source: str
    sure: Sure
    only: Mapping[str, Any] = Field(default_factory=dict)
    probe: Probe
    sample: Any
    wrong: str
    change: str

    def concerns(self, config: Config) -> bool:
        """Whether a stack relies on it."""
        return all(_is(config, key, wanted) for key, wanted in self.only.items())


def _is(config: Config, key: str, wanted: Any) -> bool:
    if key == "workers":
        return any(re.search(wanted, group.type.name) for group in config.worker_groups)
    if key == "region":
        return bool(re.search(wanted, config.region.name))
    whose: Sequence[Any] = (config.settings,)
    if key.startswith("workers."):
        whose, key = config.settings.groups, key.removeprefix("workers.")
    values = [attrgetter(key)(one) for one in whose]
    return any(bool(value) == wanted if isinstance(wanted, bool) else bool(value == wanted) for value in values)


@cache
def register() -> tuple[Assumption, ...]:
    """Every row, in the files' order."""
    files = sorted(FOLDER.glob("*.yaml"))
    return tuple(Assumption.model_validate(row) for file in files for row in load(file.read_text()))

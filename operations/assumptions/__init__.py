"""The register of assumptions: what this project relies on and only a real cluster can prove, each with its probe.

The rows are in the YAML files beside this one. A row says what is assumed, by which source, how sure that is, where the
code relies on it, a question that changes nothing and settles it, what would be seen if it is wrong, and what to change
then. It also has one answer of either kind, so that tests hold that its probe can tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from components.config import Config

FOLDER = Path(__file__).parent

Result = Literal["confirmed", "refuted", "unknown"]
# documented: a guide or reference of AWS's says so, and nobody here saw it. reported: public records of real clusters
# show it. disputed: sources disagree. unknown: no source says, the safe side is taken.
Sure = Literal["documented", "reported", "disputed", "unknown"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_Strict):
    """Where the code relies on the row: a file of this project, and words in it."""

    path: str
    words: str


class Probe(_Strict):
    """A question that changes nothing, and how its answer is read.

    Asked is a node (``node`` is a role, or any; ``command`` is its shell's), AWS (``api`` is boto3's client and method;
    ``region`` where another than the stack's answers) or Kubernetes (``kubernetes`` is nodes or pods). ``find`` is a
    JMESPath expression that picks from an answer of AWS or Kubernetes what counts. ``{cluster}`` and the like in
    commands, arguments and expressions are replaced. What matches neither regular expression settles nothing.
    """

    node: Literal["", "any", "controller", "login", "worker"] = ""
    command: str = ""
    api: str = ""
    region: str = ""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    kubernetes: Literal["", "nodes", "pods"] = ""
    find: str = ""
    confirmed: str
    refuted: str

    def read(self, text: str) -> Result:
        """What an answer says. One that says both says nothing."""
        said = [bool(re.search(pattern, text, re.MULTILINE)) for pattern in (self.confirmed, self.refuted)]
        return "unknown" if said[0] == said[1] else "confirmed" if said[0] else "refuted"


class Samples(_Strict):
    """An answer of either kind: what a node prints, or what AWS or Kubernetes answers before ``find``."""

    confirmed: Any
    refuted: Any


class Assumption(_Strict):
    """A row. ``only`` says for which stacks it holds: a setting's value (true for any), or a pattern
    of worker types or of the region."""

    id: str
    claim: str
    source: str
    sure: Sure
    relies: tuple[Place, ...]
    only: Mapping[str, Any] = Field(default_factory=dict)
    probe: Probe
    samples: Samples
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
    value: Any = config.settings
    for part in key.split("."):
        value = getattr(value, part)
    return bool(value) == wanted if isinstance(wanted, bool) else bool(value == wanted)


@cache
def register() -> tuple[Assumption, ...]:
    """Every row, in the files' order."""
    files = sorted(FOLDER.glob("*.yaml"))
    return tuple(Assumption.model_validate(row) for file in files for row in yaml.safe_load(file.read_text()))

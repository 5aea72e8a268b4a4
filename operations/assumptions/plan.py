"""What a probe cannot settle, because it needs nodes of its own: experiments on a small cluster, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from components.catalogue.accelerators import lookup
from components.common.documents import load
from components.config import Config, parse
from components.estimates import cost

from . import FOLDER

# What the SageMaker Developer Guide leaves open of OnInitComplete (ClusterLifeCycleConfig).
IMAGE = FOLDER / "plans" / "image.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outcome(_Strict):
    """An answer that an experiment may give, and what to change in this project then."""

    answer: str
    then: str


class Experiment(_Strict):
    """A question, the instance group that answers it, and commands that change nothing but that group's nodes."""

    id: str
    question: str
    group: str
    commands: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


class Plan(_Strict):
    """Experiments on one cluster: ``stack`` is its configuration, to which each experiment's group adds a node."""

    title: str
    hours: float
    stack: Mapping[str, Any]
    instance_type: str
    files: Mapping[str, str]
    before: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    after: tuple[str, ...]

    @property
    def config(self) -> Config:
        """The stack's configuration, checked. Raises ConfigError."""
        values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.stack.items()}
        return parse(values)

    @property
    def usd(self) -> float:
        """What it costs, by list prices: the stack and a node for each group, for so many hours."""
        stack, node = cost.estimate(self.config).hourly_usd, lookup(self.instance_type).hourly_usd
        assert stack is not None, "the stack has only what has a published price"
        assert node is not None, "the groups' instance type has a published price"
        return self.hours * (stack + node * len({one.group for one in self.experiments}))


def image_plan() -> Plan:
    """The plan for set-up by HyperPod's image."""
    return Plan.model_validate(load(IMAGE.read_text()))

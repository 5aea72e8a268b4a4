"""``job checkpoints``: the size of a model's checkpoints, how long each tier takes to keep one, how often to save.

The model is Daly's: failures are independent, training stands while a checkpoint is written, and a failure costs the
work since the last one. Asynchronous saving stops training for less, so the interval errs to the long side.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from components.config import Config
from components.estimates.amounts import Part, total
from components.estimates.cost import estimate
from components.storage.file_systems import bandwidth

from ..failures import bad_input

# S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3.1: weights of
# 16 bits, and for Adam a copy of them, momentum and variance of 32 bits. Gradients are not kept.
BYTES_PER_PARAMETER = 14
SIZE_SOURCE = "16-bit weights, and Adam's three 32-bit states: Rajbhandari et al., ZeRO, section 3.1"
# A. Dubey et al., "The Llama 3 Herd of Models", section 3.3.4.
_INTERRUPTIONS, _DAYS, _GPUS = 419, 54, 16_384
RATE_SOURCE = (
    f"{_INTERRUPTIONS} unexpected interruptions in {_DAYS} days on {_GPUS:,} H100: Dubey et al., The Llama 3 Herd of "
    "Models, section 3.3.4"
)
INTERVAL_SOURCE = "Daly, A higher order estimate of the optimum checkpoint interval for restart dumps"
# Amazon S3 User Guide, "Best practices design patterns: optimizing Amazon S3 performance": for one instance.
_S3_GBPS = 100.0
# Managed tiered checkpointing keeps each part on two nodes.
_COPIES = 2
_DAY = 86_400.0
# Compared with the recommended interval, seconds.
INTERVALS = (900.0, 3600.0, 14_400.0)
_UNITS = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An interval between checkpoints, seconds, and what it costs a day, in hours of the whole cluster: training that
    stands while it saves, and work that is done again."""

    every_s: float
    recommended: bool
    saving_h: float
    redone_h: float
    usd: str


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A place for checkpoints, and its bytes per second at best."""

    name: str
    bytes_per_s: float
    save_s: float
    choices: tuple[Choice, ...]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """A stack's checkpoints of a model."""

    config: Config
    parameters: float
    bytes_per_parameter: float

    @property
    def bytes(self) -> float:
        """The size of one."""
        return self.parameters * self.bytes_per_parameter

    @property
    def nodes(self) -> int:
        """Nodes that train."""
        return sum(group.count for group in self.config.training_groups)

    @property
    def accelerators(self) -> int:
        """GPUs or Trainium chips that train."""
        return sum(group.count * group.type.accelerators for group in self.config.training_groups)

    @property
    def failures_a_day(self) -> float:
        """Expected interruptions of a job on all of them, by the rate of Llama 3's training."""
        return _INTERRUPTIONS / _DAYS / _GPUS * self.accelerators

    @property
    def hourly(self) -> Part:
        """An hour's price of the nodes that train."""
        cost = estimate(self.config)
        return total("", (cost.parts[name] for name in cost.accelerated))

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The fastest first."""
        rates = sorted(self._rates(), key=lambda one: -one[1])
        return tuple(self._tier(name, rate) for name, rate in rates)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sources, and what does not fit."""
        return tuple(self._notes())

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            "parameters": self.parameters,
            "bytes": self.bytes,
            "nodes": self.nodes,
            "accelerators": self.accelerators,
            "failures_a_day": self.failures_a_day,
            "tiers": [asdict(tier) for tier in self.tiers],
            "notes": list(self.notes),
        }

    @property
    def _memory_percent(self) -> int:
        return self.config.settings.charts.checkpoint_memory_percent or 0

    def _network(self, most_gbps: float = math.inf) -> float:
        """Bytes per second of all nodes together."""
        return sum(
            group.count * min(group.type.network_gbps, most_gbps) * 1e9 / 8 for group in self.config.training_groups
        )

    def _rates(self) -> Iterator[tuple[str, float]]:
        fsx = self.config.settings.fsx
        if self._memory_percent:
            yield "memory", self._network()
        yield "S3", self._network(_S3_GBPS)
        if not fsx.file_system_id:
            yield "/fsx", min(self._network(), bandwidth(self.config.fsx_gib, fsx.throughput))

    def _tier(self, name: str, rate: float) -> Tier:
        save = self.bytes / rate
        best = optimum(save, _DAY / self.failures_a_day)
        choices = sorted({*INTERVALS, best})
        return Tier(
            name=name,
            bytes_per_s=rate,
            save_s=save,
            choices=tuple(self._choice(every, save, recommended=every == best) for every in choices),
        )

    def _choice(self, every: float, save: float, *, recommended: bool) -> Choice:
        saving = 24 * save / (every + save)
        redone = self.failures_a_day * (every + save) / 2 / 3600
        dollars = self.hourly.times(saving + redone).figure()
        return Choice(every_s=every, recommended=recommended, saving_h=saving, redone_h=redone, usd=dollars)

    def _notes(self) -> Iterator[str]:
        settings = self.config.settings
        if self.bytes_per_parameter == BYTES_PER_PARAMETER:
            yield f"size: {SIZE_SOURCE}"
        yield f"failures: {RATE_SOURCE}"
        yield f"interval: {INTERVAL_SOURCE}. Restarts come on top"
        yield "seconds: at the full rate of the nodes' networks, of /fsx, and of S3 (100 Gbit/s a node)"
        if self._memory_percent:
            room = sum(one.count * one.type.memory_gib for one in self.config.training_groups) * 2**30
            if self.bytes * _COPIES > room * self._memory_percent / 100:
                yield (
                    f"memory: two copies of {size(self.bytes)} do not fit into {self._memory_percent} % of the nodes' "
                    f"{size(room)}"
                )
        elif settings.orchestrator == "eks":
            yield "hyperpod:charts.checkpointMemoryPercent adds the nodes' memory as a tier"
        if settings.fsx.file_system_id:
            yield f"/fsx is left out: its throughput is {settings.fsx.file_system_id}'s, which the stack does not know"
        elif self.bytes > self.config.fsx_gib * 2**30:
            yield f"/fsx has {size(self.config.fsx_gib * 2**30)}: a checkpoint does not fit"


def calculate(config: Config, parameters: str, bytes_per_parameter: float) -> Checkpoints:
    """A stack's checkpoints of a model with ``parameters``, as 70B. Raises Failure."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MBT]?)", parameters.upper())
    count = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not count:
        raise bad_input(f'--parameters "{parameters}" is no number of parameters', "8B, 70B, 1.5T or 350M")
    checkpoints = Checkpoints(config=config, parameters=count, bytes_per_parameter=bytes_per_parameter)
    if not checkpoints.accelerators:
        raise bad_input("the stack has no node with accelerators", "hyperpod:workers names groups and their counts")
    return checkpoints


def optimum(save_s: float, between_failures_s: float) -> float:
    """Seconds of training between two checkpoints that cost the least, by Daly's higher order estimate."""
    if save_s >= 2 * between_failures_s:
        return between_failures_s
    part = save_s / (2 * between_failures_s)
    return math.sqrt(2 * save_s * between_failures_s) * (1 + math.sqrt(part) / 3 + part / 9) - save_s


def size(count: float) -> str:
    """``980 GB``."""
    return f"{count / 1e12:,.2f} TB" if count >= 1e12 else f"{count / 1e9:,.0f} GB"


def duration(seconds: float) -> str:
    """``39 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"

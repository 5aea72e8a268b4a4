"""What the job find-slow-node printed: the tests between pairs of its workers, and what is slow."""

import re
from collections.abc import Mapping, Sequence

from hyperpod_commands import bandwidth, pairs

from components.config import InstanceGroup

_LINE = re.compile(r"^(\d+) (\d+)\| ?(.*)$")


def read(group: InstanceGroup, lines: Sequence[str], names: Mapping[int, str]) -> list[pairs.Pair]:
    """Every pair that was tested, with its bandwidth. ``names`` are of the workers by their places."""
    said: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_LINE.match, lines)):
        said.setdefault((int(match[1]), int(match[2])), []).append(match[3])
    return [_pair(group, "\n".join(text), names[one], names[other]) for (one, other), text in said.items()]


def _pair(group: InstanceGroup, text: str, one: str, other: str) -> pairs.Pair:
    rating = bandwidth.rate("nccom" if group.type.accelerator == "trainium" else "nccl", text, None)
    if not rating.rows:
        return pairs.Pair((one, other), None, rating.reasons[-1])
    return pairs.Pair((one, other), rating.peak)


def threshold(group: InstanceGroup) -> float | None:
    """GB/s that two healthy nodes of a group reach with all of their devices; None if unknown."""
    row = group.type
    test, devices = ("nccom", row.neuron_cores) if row.accelerator == "trainium" else ("nccl", row.accelerators)
    return bandwidth.threshold("all_reduce", test, row.network_gbps, 2, devices)

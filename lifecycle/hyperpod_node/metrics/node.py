"""Reports what this node is, what it should have, and whether its exporters run."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Dict, List, Mapping, Sequence

from ..host.errors import StepError
from ..host.host import Host
from . import facts_file
from .exposition import Family, Sample, one

# LNet's interfaces: address and status (Lustre Operations Manual, "Monitoring LNet").
LNET = "/sys/kernel/debug/lnet/nis"


@dataclasses.dataclass(frozen=True)
class Facts:
    """The boot step's facts for the writer. ``exporters``: exporter to its unit. ``lustre_efa_interfaces``: those that
    the client of the shared file system should use, 0 if it has only TCP.
    """

    cluster: str
    node: str
    group: str
    role: str
    instance_id: str
    instance_type: str
    accelerators: int
    efa_interfaces: int
    exporters: Mapping[str, str]
    lustre_efa_interfaces: int = 0

    def text(self) -> str:
        """As it is written to a file."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"


def load(host: Host) -> Facts:
    """Return the boot step's facts. Raises StepError without any."""
    text = host.read(facts_file(host))
    if text is None:
        raise StepError(f"no {facts_file(host)}: this node sends no metrics")
    try:
        document: Dict[str, Any] = json.loads(text)
        return Facts(**document)
    except (ValueError, TypeError) as error:
        raise StepError(f"{facts_file(host)} is malformed: {error}") from None


def families(host: Host, facts: Facts) -> List[Family]:
    """Return the node's own series."""
    return [
        one(
            "hyperpod_node_info",
            "The instance that this node is",
            1,
            instance_id=facts.instance_id,
            instance_type=facts.instance_type,
        ),
        one("hyperpod_accelerators_expected", "GPUs or Neuron devices of this instance type", facts.accelerators),
        one("hyperpod_efa_interfaces_expected", "EFA interfaces of this instance type", facts.efa_interfaces),
        one("hyperpod_metrics_written_time_seconds", "When these figures were written", round(host.wall(), 3)),
        Family("hyperpod_exporter_up", "Whether an exporter's unit runs", _states(host, facts.exporters)),
        *_lustre_efa(host, facts.lustre_efa_interfaces),
    ]


def _lustre_efa(host: Host, expected: int) -> List[Family]:
    """Report the interfaces, without which Lustre uses TCP silently (awsome-distributed-ai, pull request 1204)."""
    if not expected:
        return []
    return [
        one("hyperpod_lustre_efa_interfaces_expected", "EFA interfaces that Lustre's client should use", expected),
        one("hyperpod_lustre_efa_interfaces", "EFA interfaces that are up in LNet", lustre_efa_up(host)),
    ]


def lustre_efa_up(host: Host) -> int:
    """Count the EFA interfaces that Lustre's client has up."""
    return len(re.findall(r"^\S+@efa\d*\s+up\s", host.read(LNET) or "", re.MULTILINE))


def _states(host: Host, exporters: Mapping[str, str]) -> Sequence[Sample]:
    shown = host.run("systemctl", "is-active", *exporters.values(), check=False, timeout=5).out.split()
    return [({"exporter": name}, int(shown[at : at + 1] == ["active"])) for at, name in enumerate(exporters)]

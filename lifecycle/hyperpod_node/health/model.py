"""A check's input, and its possible results."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from ..facts.model import Group
from ..host.errors import StepError
from ..host.host import Host

if TYPE_CHECKING:
    from xml.etree import ElementTree

# Results, and what one run has to remember for the next; a reboot settles all of it.
FOLDER = "/run/hyperpod-health"
# The condition of a Kubernetes node for which node-problem-detector reads the results.
CONDITION = "HyperPodUnhealthy"
OK, BAD, UNKNOWN = "ok", "bad", "unknown"
# Seconds. nvidia-smi takes 1 to 2 s with eight GPUs, and hangs when the driver does.
NVIDIA_SMI_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """A check's result: "ok", "bad", or "unknown" if a tool is missing or does not answer. ``detail``: a line."""

    status: str
    detail: str = ""


@dataclass
class Subject:
    """The checked node. ``mount``: the shared file system's folder, empty if pods mount it (EKS).

    ``idle``: whether no job runs. ``memory``: the previous run's notes, to which a check may add; they are lost at a
    reboot.
    """

    host: Host
    group: Group
    mount: str = ""
    imds_v1: bool = False
    idle: bool = False
    memory: Dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _gpus: Optional[Tuple[List[ElementTree.Element], str]] = None

    def gpus(self) -> List[ElementTree.Element]:
        """Return nvidia-smi's description of each GPU, asked once. Raises StepError if it does not answer."""
        with self._lock:
            if self._gpus is None:
                self._gpus = _ask(self.host)
        found, why = self._gpus
        if why:
            raise StepError(why)
        return found


def _ask(host: Host) -> Tuple[List[ElementTree.Element], str]:
    # The boot step has no use for it.
    from xml.etree import ElementTree

    try:
        said = host.run("nvidia-smi", "-q", "-x", timeout=NVIDIA_SMI_SECONDS)
        return ElementTree.fromstring(said.out).findall("gpu"), ""
    except StepError as error:
        return [], str(error)
    except ElementTree.ParseError as error:
        return [], f"nvidia-smi gave no XML: {error}"


# A StepError of a check makes its finding "unknown". None: the check is not for this kind of node.
Check = Callable[[Subject], Optional[Finding]]


def ok(detail: str = "") -> Finding:
    """Return that all is well."""
    return Finding(OK, detail)


def bad(detail: str) -> Finding:
    """Return that the node should get no more jobs, for this reason."""
    return Finding(BAD, detail)


def unknown(detail: str) -> Finding:
    """Return that the check could not find out, for this reason."""
    return Finding(UNKNOWN, detail)


def load(host: Host, name: str) -> Dict[str, Any]:
    """Return a JSON object from a file; empty without one."""
    try:
        found = json.loads(host.read(name) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

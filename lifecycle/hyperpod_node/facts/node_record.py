"""node.json on the node's disk: the boot writes it, services and commands read it."""

from __future__ import annotations

import json

from ..host.errors import StepError
from ..host.host import Host
from . import parameters
from .model import NodeRecord

NAME = "node.json"


def write(host: Host, record: NodeRecord) -> None:
    """Write the record for services and commands."""
    host.write(f"{host.settings.state_folder}/{NAME}", parameters.render(record))


def read(host: Host) -> NodeRecord:
    """Return the record of the last boot. Raises StepError if it is missing or damaged."""
    name = f"{host.settings.state_folder}/{NAME}"
    text = host.read(name)
    if text is None:
        raise StepError(f"no {name}: the lifecycle scripts have not run here")
    return parse(text, name)


def parse(text: str, name: str) -> NodeRecord:
    """Parse the text that ``write`` wrote. Raises StepError naming what is missing or wrong."""
    try:
        found: NodeRecord = parameters.part(NodeRecord, json.loads(text), "")
        return found
    except (ValueError, RecursionError) as error:
        raise StepError(f"{name}: {error}") from None

"""The boot step ``metrics``. Where no workspace takes metrics, nothing else of this package is imported."""

from __future__ import annotations

from ..facts.model import Node
from ..host.errors import Skip
from . import facts_file


def run(node: Node) -> str:
    """Step ``metrics``."""
    url = node.parameters.remote_write_url
    if url is not None:
        from . import setup

        return setup.run(node, url)
    if node.host.read(facts_file(node.host)) is not None:
        from . import setup

        setup.remove(node.host)
    raise Skip("no workspace takes metrics")

"""A digest of each dashboard's JSON."""

import json
from hashlib import sha256
from pathlib import Path

from operations.dashboards.panels import rendered
from operations.dashboards.shipped import SHIPPED

DIGESTS = Path(__file__).with_suffix(".yaml")


def digests() -> dict[str, str]:
    """The first digits of a SHA-256 of what Grafana would import, by dashboard."""
    return {one.name: sha256(json.dumps(rendered(one), sort_keys=True).encode()).hexdigest()[:8] for one in SHIPPED}

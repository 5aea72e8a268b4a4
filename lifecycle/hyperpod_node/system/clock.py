"""The node's clock: MUNGE, TLS and request signatures all fail if it is wrong by minutes."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from ..facts.model import Node
from ..host import units
from ..host.errors import Skip, StepError
from ..host.host import Host
from ..host.imds import Imds, Unavailable

# munged(8): a credential lives 300 s. AWS signatures (IAM User Guide) bear 5 minutes too. Half of it is no drift.
LARGEST_SKEW = 150.0
NOTABLE_SKEW = 5.0


def run(node: Node) -> str:
    """Step ``clock``: compare the clock with the instance metadata's, which runs outside the node."""
    # By the answer that the identity step had already.
    ahead = _ahead(node.facts["imds_date"], node.facts["imds_date_at"])
    if ahead is None:
        raise Skip("instance metadata gives no time to compare with")
    if abs(ahead) > NOTABLE_SKEW and node.host.which("chronyc"):
        node.host.run("chronyc", "-a", "makestep", check=False, timeout=10)
        ahead = skew(node.host, node.parameters.imds_v1, node.timeout("imds"))
    if abs(ahead) > LARGEST_SKEW:
        where = "ahead of" if ahead > 0 else "behind"
        raise StepError(
            f"the clock is {abs(ahead):.0f} s {where} the instance metadata's; "
            "MUNGE refuses credentials older than 300 s, so no Slurm daemon would be believed"
        )
    if abs(ahead) > NOTABLE_SKEW:
        node.warn(f"the clock is {ahead:+.0f} s off the instance metadata's")
    return f"within {abs(ahead):.0f} s of the instance metadata's"


def synchronised(node: Node) -> str:
    """Step ``time-sync``: chrony runs."""
    host = node.host
    if host.which("chronyd") is None:
        raise StepError("chrony is not installed; nothing synchronizes the clock")
    unit = next(
        (u for u in ("chrony", "chronyd") for d in ("/lib", "/usr/lib", "/etc") if _unit(node, d, u)), "chronyd"
    )
    units.start(node.host, unit)
    return f"{unit} runs"


def _unit(node: Node, folder: str, unit: str) -> bool:
    return node.host.path(f"{folder}/systemd/system/{unit}.service").exists()


def _ahead(date: str, here: float) -> "float | None":
    """Return the seconds between the clock and the date of an answer; None if that is no date."""
    try:
        return here - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None


def skew(host: Host, imds_v1: bool, timeout: float) -> float:
    """Return the seconds that the clock is ahead of the instance metadata's, asked now. Raises StepError without an
    answer.
    """
    imds = Imds(host, imds_v1, timeout)
    try:
        imds.get("instance-id")
    except Unavailable as unavailable:
        raise StepError(str(unavailable)) from None
    ahead = _ahead(imds.date, host.wall())
    if ahead is None:
        raise StepError("instance metadata gives no time to compare with")
    return ahead

"""Keeps everybody except root and AWS's agents from instance metadata, which gives its readers the node's role.

It is a routing rule by the user who opened the socket (ip-rule(8), ``uidrange``): every kernel that Ubuntu ships
supports it, every image has the program, and firewall changes do not affect it. systemd-networkd removes rules that it
did not make, except those of protocol ``kernel`` (networkd.conf(5), ManageForeignRoutingPolicyRules). Users of a
namespace count as who they are outside. A unit makes the rule before any other service when the node boots again.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Tuple

from ..facts.model import Node
from ..host import units
from ..host.errors import StepError
from ..host.host import Host

# EC2 User Guide, "Access instance metadata for an EC2 instance".
ADDRESSES = (("-4", "169.254.169.254"), ("-6", "fd00:ec2::254"))
# System users of AWS's agents that are not root: the CloudWatch agent's (its guide, "run_as_user").
AGENTS = ("cwagent",)
# Before every rule but that for the node's own addresses.
PRIORITY = 1
# The last is no user's: it means "leave as it is" (chown(2)).
LAST_UID = 2**32 - 2
NOBODY = 65534
UNIT = "hyperpod-metadata.service"
TEXT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Keep instance metadata to root{agents}
DefaultDependencies=no
Before=sysinit.target network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
{rules}
ExecStart=/bin/sh -c 'ip -4 rule show priority {priority} | grep -q prohibit'

[Install]
WantedBy=sysinit.target
"""


def run(node: Node) -> str:
    """Step ``metadata``. Raises StepError if anybody else still gets through."""
    host = node.host
    agents = dict(_agents(host))
    # An existing rule is refused, which is fine; a node may have no IPv6.
    rules = (
        f"ExecStart=-/bin/sh -c 'ip {family} rule add priority {PRIORITY} protocol kernel to {address} "
        f"uidrange {first}-{last} prohibit'"
        for family, address in ADDRESSES
        for first, last in ranges(agents.values())
    )
    named = "".join(f" and {name}" for name in sorted(agents))
    text = TEXT.format(agents=named, rules="\n".join(rules), priority=PRIORITY)
    units.start(node.host, UNIT, restart=host.write(f"{units.UNITS}/{UNIT}", text))
    if why := exposure(host):
        raise StepError(why)
    return f"only root{named}"


def exposure(host: Host) -> str:
    """Return why users other than root and the agents get the node's role; empty if they do not."""
    found = [
        address
        for family, address in ADDRESSES
        if host.run("ip", family, "route", "get", address, "uid", str(NOBODY), check=False).code == 0
    ]
    if not found:
        return ""
    return f"every user reaches {' and '.join(found)}, and gets the role of this node: `systemctl status {UNIT}`"


def _agents(host: Host) -> Iterator[Tuple[str, int]]:
    """Return the agents' users that this node has, and their ids."""
    for line in (host.read("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if fields[0] in AGENTS:
            yield fields[0], int(fields[2])


def ranges(allowed: Iterable[int]) -> Iterator[Tuple[int, int]]:
    """Return every user's id except root's and these."""
    first = 1
    for uid in [*sorted(allowed), LAST_UID + 1]:
        if first < uid:
            yield first, uid - 1
        first = uid + 1

"""Keeps pods from instance metadata, which gives its readers the credentials of the node's role.

Packets of pods are forwarded; those of the node and of pods in its network are not: they come from the interface ``lo``
(ip-rule(8), ``iif``). Routing rules distinguish the two without the firewall, which kube-proxy and the VPC CNI rewrite,
and whatever hop limit HyperPod gives its instances, which nobody can set. systemd-networkd removes rules that it did
not make, except those of protocol ``kernel`` (networkd.conf(5), ManageForeignRoutingPolicyRules). A unit makes them
before any pod when the node boots again. Pods get roles by EKS Pod Identity, from another address.
"""

from __future__ import annotations

from ..facts.model import Node
from ..host import units
from ..host.host import Host

# EC2 User Guide, "Access instance metadata for an EC2 instance".
ADDRESSES = (("-4", "169.254.169.254"), ("-6", "fd00:ec2::254"))
# Before the rules of the VPC CNI, which begin at 512 (amazon-vpc-cni-k8s, pkg/networkutils).
OWN, OTHERS = 2, 3
UNIT = "hyperpod-pod-metadata.service"
# An existing rule is refused, which is fine; a node may have no IPv6. The node's own rule comes first, so nothing is
# ever refused to it.
RULES = (
    "ExecStart=-/bin/sh -c 'ip {family} rule add priority {own} protocol kernel iif lo to {address} lookup main'\n"
    "ExecStart=-/bin/sh -c 'ip {family} rule show priority {own} | grep -q lookup && "
    "ip {family} rule add priority {others} protocol kernel to {address} prohibit'\n"
)
TEXT = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Keep instance metadata from pods
DefaultDependencies=no
Before=sysinit.target network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
{rules}ExecStart=/bin/sh -c 'ip -4 rule show priority {others} | grep -q prohibit'

[Install]
WantedBy=sysinit.target
"""


def run(node: Node) -> str:
    """Step ``pod-metadata``. Raises StepError if systemd cannot make the rules."""
    units.start(node.host, UNIT, restart=node.host.write(f"{units.UNITS}/{UNIT}", text()))
    return "not from pods"


def exposure(host: Host) -> str:
    """Return why pods get the node's role; empty if they do not."""
    shown = host.run("ip", "-4", "rule", "show", "priority", str(OTHERS)).out
    return "" if "prohibit" in shown else f"pods reach {ADDRESSES[0][1]}, and get the role of this node: {UNIT}"


def text() -> str:
    """Return the unit's file."""
    rules = "".join(
        RULES.format(family=family, address=address, own=OWN, others=OTHERS) for family, address in ADDRESSES
    )
    return TEXT.format(rules=rules, others=OTHERS)

"""The hosts' network: a bridge for the stack's private subnet, with addresses and a veth pair for every host."""

import ipaddress
import itertools
import threading

from .sandbox import Sandbox

# The name of the customer VPC's interface on HyperPod's instances.
INTERFACE = "ens6"
# EC2 User Guide, "Access instance metadata for an EC2 instance".
IMDS_ADDRESSES = ("169.254.169.254", "fd00:ec2::254")
# EC2's jumbo frames.
MTU = 9001
# Hosts are numbered from here; EC2 keeps the first four addresses of a subnet.
_FIRST_HOST = 10
# After the rules that a host may make, and before the kernel's others (ip-rule(8)).
_LOCAL = 32000
_NAMED_HOSTS = 254


class Network:
    """One subnet. Its first address is the router's; the second is the AWS endpoint's (on EC2, the resolver's)."""

    def __init__(self, sandbox: Sandbox, cidr: str, region: str) -> None:
        self.subnet = ipaddress.ip_network(cidr)
        self.sandbox, self.region = sandbox, region
        self.router, self.endpoint = str(self.subnet[1]), str(self.subnet[2])
        self._numbers, self._wires = itertools.count(_FIRST_HOST), itertools.count()
        self._lock = threading.Lock()
        # The bridge's end of each host's wire, by the host's address.
        self._plugs: dict[str, str] = {}

    def build(self) -> None:
        """Create the bridge with both addresses.

        Without a hardware address of its own it has one of its wires', and when that host's power is cut the others
        look for it in vain until their ARP entries end (seen: 36 s).
        """
        length = self.subnet.prefixlen
        self.sandbox.ip(
            [
                f"link add vpc address {self.hardware_address(self.router)} type bridge",
                f"link set vpc mtu {MTU} up",
                f"addr add {self.router}/{length} dev vpc",
                f"addr add {self.endpoint}/{length} dev vpc",
            ]
        )

    def next_address(self) -> str:
        """An address that no host of this run has had, since a replacement gets a new one."""
        with self._lock:
            return str(self.subnet[next(self._numbers)])

    def connect(self, pid: int, address: str) -> None:
        """Connect the network namespace of a host's first process to the bridge."""
        with self._lock:
            wire = self._plugs[address] = f"wire{next(self._wires)}"
        # The hardware address survives a reboot, like that of an instance: neighbours have it in their ARP caches.
        hardware = self.hardware_address(address)
        self.sandbox.ip(
            [
                f"link add {wire} mtu {MTU} type veth peer name {INTERFACE} address {hardware} mtu {MTU} netns {pid}",
                f"link set {wire} master vpc up",
            ]
        )
        self.sandbox.ip(
            [
                "link set lo up",
                f"addr add {IMDS_ADDRESSES[0]} dev lo",
                # Without a search for the same address elsewhere, in which it could not be used yet.
                f"addr add {IMDS_ADDRESSES[1]} dev lo nodad",
                f"addr add {address}/{self.subnet.prefixlen} dev {INTERFACE}",
                f"link set {INTERFACE} up",
                f"route add default via {self.router}",
            ],
            of=pid,
        )
        # Metadata is an address of the host's own here, and on EC2 beyond its interface: the host's rules come first.
        for family in ("-4", "-6"):
            rules = [f"rule add priority {_LOCAL} lookup local", "rule del priority 0"]
            self.sandbox.ip(rules, of=pid, family=family)

    def cut(self, address: str) -> None:
        """Part a host from the network: it runs on, but nobody reaches it, and it reaches nobody."""
        self.sandbox.ip([f"link set {self._plugs[address]} down"])

    def heal(self, address: str) -> None:
        """Give a host that was cut off its network back."""
        self.sandbox.ip([f"link set {self._plugs[address]} up"])

    @staticmethod
    def hardware_address(address: str) -> str:
        """The interface's MAC address."""
        return "0e:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(address).packed)

    def hosts_file(self) -> str:
        """The names that the VPC's resolver would know: one for every address that a host can get."""
        lines = ["127.0.0.1 localhost"]
        for number in range(_FIRST_HOST, _FIRST_HOST + _NAMED_HOSTS):
            if number < self.subnet.num_addresses - 1:
                address = str(self.subnet[number])
                name = host_name(address)
                lines.append(f"{address} {name}.{self.region}.compute.internal {name}")
        return "\n".join(lines) + "\n"


def host_name(address: str) -> str:
    """EC2's name for an address. HyperPod uses it as hostname and Slurm node name."""
    return "ip-" + address.replace(".", "-")

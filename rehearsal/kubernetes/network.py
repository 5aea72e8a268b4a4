"""A separate network for each run, so that parallel runs and the machine's other services do not collide.

The operators listen on fixed ports, as they do in their pods. An isolated command has only the loopback interface, with
an additional address, since Kubernetes refuses 127.0.0.1 as an endpoint.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence

from .container import available, unshare

# RFC 2544's benchmark block, which is never routed.
ADDRESS = "198.18.0.1"
_ISOLATED = "HYPERPOD_REHEARSAL_NETWORK"
# Linux, <linux/sockios.h> and <linux/if.h>: set an interface's address, set its flags, and the flag for "up".
_SIOCSIFADDR, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x8914, 0x1


def isolated() -> bool:
    """Whether this process has its own network."""
    return os.environ.get(_ISOLATED) == "own"


def isolate(command: Sequence[str]) -> None:
    """Replace this process by ``command`` in a new network. The command must call ``set_up`` first. Never returns."""
    os.environ[_ISOLATED] = "own"
    line = [*unshare(), "--net", *command]
    os.execvp(line[0], line)


def set_up() -> None:
    """Bring loopback up, with an address that Kubernetes accepts for endpoints."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"lo:0", address))


def own_address() -> str:
    """The machine's outgoing address, which Kubernetes accepts as an endpoint; loopback if there is none."""
    if isolated():
        return ADDRESS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing. The address is from the documentation block.
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def main(command: Sequence[str]) -> None:
    """``python -m rehearsal.kubernetes.network COMMAND...``: run a command, in its own network if possible."""
    if available():
        if not isolated():
            isolate([sys.executable, "-m", __spec__.name, *command])
        set_up()
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(sys.argv[1:])

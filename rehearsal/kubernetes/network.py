"""A network of a run's own, so that runs side by side, and whatever else listens on this machine, do not meet.

The operators listen on fixed ports, as each would in a pod of its own. A command that is isolated has only loopback,
with one more address there: Kubernetes refuses loopback's own as an endpoint.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence

from .container import available, unshare

# RFC 2544's block for benchmarks, never routed.
ADDRESS = "198.18.0.1"
_ISOLATED = "HYPERPOD_REHEARSAL_NETWORK"
# Linux, <linux/sockios.h> and <linux/if.h>: set an interface's address, its flags, and the flag that it is up.
_SIOCSIFADDR, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x8914, 0x1


def isolated() -> bool:
    """Whether this process has a network of its own."""
    return os.environ.get(_ISOLATED) == "own"


def isolate(command: Sequence[str]) -> None:
    """Become ``command``, in a network of its own; it has to call ``set_up`` first. Returns never."""
    os.environ[_ISOLATED] = "own"
    line = [*unshare(), "--net", *command]
    os.execvp(line[0], line)


def set_up() -> None:
    """Bring loopback up, with the address that endpoints can have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"lo:0", address))


def own_address() -> str:
    """The machine's address towards others, which Kubernetes accepts as an endpoint; loopback where it has none."""
    if isolated():
        return ADDRESS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing. The address is of the block for documentation.
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def main(command: Sequence[str]) -> None:
    """``python -m rehearsal.kubernetes.network COMMAND...``: run a command in a network of its own, where it can be."""
    if available():
        if not isolated():
            isolate([sys.executable, "-m", __spec__.name, *command])
        set_up()
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(sys.argv[1:])

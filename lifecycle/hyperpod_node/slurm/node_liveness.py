"""Finds which hosts are up: their kernels answer an echo request or a connection; all are asked at once.

A refused connection comes from a live host whose slurmd restarts, and jobs survive that. Echo first: a connection that
is closed at once leaves an error in slurmd's log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from typing import Sequence, Set

SLURMD_PORT = 6818
# Seconds for the answers of all addresses.
PROBE_TIMEOUT = 0.5
# Bytes of a socket's buffer for an answer: the kernel counts its own bookkeeping, too. By default 256 answers fit, and
# it drops the others.
ANSWER = 4096


def probe(addresses: Sequence[str], port: int = SLURMD_PORT, timeout: float = PROBE_TIMEOUT) -> Set[str]:
    """Return the addresses whose kernel answers: an echo request, or a connection to slurmd, accepted or refused."""
    there = echo(addresses, timeout / 2)
    return there | connect([address for address in addresses if address not in there], port, timeout / 2)


def echo(addresses: Sequence[str], timeout: float) -> Set[str]:
    """Return the addresses that answer an ICMP echo request. Empty if that is not allowed."""
    if not addresses:
        return set()
    request = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1)
    total = sum(struct.unpack("!4H", request))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    request = request[:2] + struct.pack("!H", checksum) + request[4:]
    there: Set[str] = set()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ANSWER * len(addresses))
            for address in addresses:
                with contextlib.suppress(OSError):
                    sock.sendto(request, (address, 0))
            end = time.monotonic() + timeout
            while len(there) < len(set(addresses)) and time.monotonic() < end:
                sock.settimeout(max(0.001, end - time.monotonic()))
                packet, (source, _) = sock.recvfrom(256)
                header = (packet[0] & 15) * 4
                # Type 0 is an answer, and the kernel gives every raw socket all of them.
                if packet[header : header + 1] == b"\0" and packet[header + 4 : header + 8] == request[4:8]:
                    there.add(source)
    except OSError:  # the time is over, or no raw socket
        pass
    return there & set(addresses)


def connect(addresses: Sequence[str], port: int, timeout: float) -> Set[str]:
    """Return the addresses that accept or refuse a connection; a lost host does neither."""
    there: Set[str] = set()
    with selectors.DefaultSelector() as selector:
        for address in addresses:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                code = sock.connect_ex((address, port))
            except OSError:  # no such name
                sock.close()
                continue
            if code == errno.EINPROGRESS:
                selector.register(sock, selectors.EVENT_WRITE, (sock, address))
                continue
            sock.close()
            if code in (0, errno.ECONNREFUSED):
                there.add(address)
        end = time.monotonic() + timeout
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(max(0.0, end - time.monotonic())):
                sock, address = key.data
                # "No route" comes from our own kernel if no host has the address.
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                    there.add(address)
                selector.unregister(sock)
                sock.close()
        for key in list(selector.get_map().values()):
            key.data[0].close()
    return there

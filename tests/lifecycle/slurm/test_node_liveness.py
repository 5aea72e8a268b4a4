"""Which hosts answer."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hyperpod_node.slurm import node_liveness

from tests.sockets import silent_port


def test_a_living_kernel_answers() -> None:
    assert node_liveness.probe(["127.0.0.1"], timeout=0.4) == {"127.0.0.1"}


def test_a_name_without_an_address_is_ignored_and_the_others_are_still_used() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        there = node_liveness.connect(["no.such.name.invalid", "127.0.0.1"], server.getsockname()[1], 0.2)
    assert there == {"127.0.0.1"}


def test_nobody_is_asked_where_there_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket", None)
    assert node_liveness.probe([]) == set()


def test_an_address_that_says_nothing_is_silent() -> None:
    with silent_port() as port:
        assert node_liveness.connect(["127.0.0.1"], port, 0.1) == set()


@pytest.mark.parametrize("process", [7, 0xFFFF])
def test_an_echo_request_has_the_checksum_that_kernels_want(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 792 and 1071: the one's complement sum over the message, its checksum included, has every bit set."""
    sent: list[bytes] = []

    class Raw:
        def __enter__(self) -> Raw:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setsockopt(self, *_: int) -> None:
            pass

        def sendto(self, request: bytes, _: tuple[str, int]) -> None:
            sent.append(request)

        def settimeout(self, _: float) -> None:
            raise OSError

    monkeypatch.setattr("os.getpid", lambda: process)
    monkeypatch.setattr("socket.socket", lambda *_: Raw())
    assert node_liveness.echo(["10.0.0.1"], 0.1) == set()
    total = sum(struct.unpack("!4H", sent[0]))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


# What a small datagram takes of a receive buffer at least, and the default buffer (socket(7), net.core.rmem_default).
DATAGRAM, BUFFER = 832, 212992


def test_the_answers_of_many_nodes_fit_into_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        """Answers at once, and drops what the socket has no room for."""

        def __init__(self, *_: int) -> None:
            self.room, self.waiting = BUFFER, list[tuple[bytes, tuple[str, int]]]()

        def __enter__(self) -> Kernel:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def setsockopt(self, level: int, option: int, value: int) -> None:
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
            self.room = value

        def sendto(self, request: bytes, address: tuple[str, int]) -> None:
            if (len(self.waiting) + 1) * DATAGRAM <= self.room:
                self.waiting.append((b"\x45" + bytes(19) + b"\0" + request[1:], address))

        def settimeout(self, _: float) -> None:
            if not self.waiting:
                raise TimeoutError

        def recvfrom(self, _: int) -> tuple[bytes, tuple[str, int]]:
            return self.waiting.pop(0)

    monkeypatch.setattr("socket.socket", Kernel)
    addresses = [f"10.1.{number // 250}.{number % 250}" for number in range(1000)]
    assert node_liveness.echo(addresses, 5.0) == set(addresses)


def test_a_refused_connection_is_an_answer_and_an_accepted_one_too() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        closed = server.getsockname()[1]
        assert node_liveness.connect(["127.0.0.1"], closed, 0.2) == {"127.0.0.1"}
        server.listen()
        assert node_liveness.connect(["127.0.0.1"], closed, 0.2) == {"127.0.0.1"}


def test_an_answer_that_the_kernel_has_at_once_is_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"10.0.0.1": 0, "10.0.0.2": errno.ECONNREFUSED, "10.0.0.3": errno.EHOSTUNREACH, "10.0.0.4": errno.EPERM}

    class AtOnce(socket.socket):
        def connect_ex(self, address: tuple[str, int]) -> int:  # type: ignore[override]
            assert address[1] == 6818
            return codes[address[0]]

    monkeypatch.setattr(socket, "socket", AtOnce)
    assert node_liveness.connect(list(codes), node_liveness.SLURMD_PORT, 0.2) == {"10.0.0.1", "10.0.0.2"}

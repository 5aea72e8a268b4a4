"""Which hosts answer."""

from __future__ import annotations

import socket

from hyperpod_node import liveness

from tests.sockets import silent_port


def test_a_living_kernel_answers() -> None:
    assert liveness.probe(["127.0.0.1"], timeout=0.4) == {"127.0.0.1"}


def test_a_name_without_an_address_is_ignored_and_the_others_are_still_used() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        there = liveness.connect(["no.such.name.invalid", "127.0.0.1"], server.getsockname()[1], 0.2)
    assert there == {"127.0.0.1"}


def test_an_address_that_says_nothing_is_silent() -> None:
    with silent_port() as port:
        assert liveness.connect(["127.0.0.1"], port, 0.1) == set()


def test_a_refused_connection_is_an_answer_and_an_accepted_one_too() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        closed = server.getsockname()[1]
        assert liveness.connect(["127.0.0.1"], closed, 0.2) == {"127.0.0.1"}
        server.listen()
        assert liveness.connect(["127.0.0.1"], closed, 0.2) == {"127.0.0.1"}

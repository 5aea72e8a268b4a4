"""Who calls the embedded account's providers: processes of the same user alone, though every user reaches loopback.

The engine takes a port of a running provider and sends no secret with its calls (pulumi/pulumi,
sdk/go/common/resource/plugin/plugin.go), so what can tell callers apart is whose the connection is. Linux says it in
``/proc/net/tcp`` (proc_net_tcp.5); elsewhere nothing does, and every local user is let in.
"""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

# gRPC's clients connect from sockets of both families.
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


def owners(peer: str, connections: str) -> set[int]:
    """The user ids of the connections that come from ``ipv4:ADDRESS:PORT``: one, or none where there is none."""
    kind, _, place = peer.partition(":")
    address, _, port = place.rpartition(":")
    if kind != "ipv4":
        return set()
    # The kernel writes the four bytes as one number of the machine's order, and the port as a number; in the table of
    # IPv6 they end the address.
    wanted = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{int(port):04X}"
    rows = [line.split() for line in connections.splitlines() if "_address" not in line]
    return {int(row[7]) for row in rows if row[1].endswith(wanted) and row[3] == _ESTABLISHED}


class OwnUser(grpc.ServerInterceptor):  # type: ignore[misc] # gRPC has no types
    """Refuses every call over a connection that is another user's."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The method, after a check of the connection's user."""
        method = continuation(details)
        if method is None or method.unary_unary is None:
            return method

        def asked(request: Any, context: Any) -> Any:
            connections = "".join(table.read_text() for table in TABLES if table.exists())
            if connections and owners(context.peer(), connections) != {os.geteuid()}:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "this embedded account is another user's")
            return method.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(asked, method.request_deserializer, method.response_serializer)

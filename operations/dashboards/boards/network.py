"""EFA: what nodes send each other, and what is lost on the way. Names of AWS's EFA exporter."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import ANY_IS_BAD, NODE, RATE, Look, Query, board, figure, graph, number, rows, warn, words
from ..shipped import BY_NAME

_BYTES = Look(unit="Bps")
_EACH = "{{node}} / {{device}}"
# A device refuses a command, a queue pair or memory; the driver counts each kind (hw_counters of the EFA driver).
_ERRORS = (
    "alloc_pd_err", "alloc_ucontext_err", "cmds_err", "create_ah_err", "create_cq_err", "create_qp_err", "mmap_err",
    "rdma_read_wr_err", "rdma_write_wr_err", "reg_mr_err",
)  # fmt: skip
_ABOUT = """
Sent and received include RDMA. A retransmission is EFA's own repair of a lost packet: a few per million bytes are
normal, a lasting share names a bad link or a congested one. *Unresponsive* and *impaired* peers are named by their
victims here: look for the node that many others complain about. `hyperpod benchmark` measures what the
network can do. On EKS these panels need EFA metrics of AWS's add-on, which this project switches on where nodes have
EFA.
"""


def _rate(counter: str, by: str = "node", window: str = RATE) -> str:
    return f"sum by ({by}) (rate(node_amazonefa_{counter}{{{NODE}}}[{window}]))"


def _hour(counter: str) -> str:
    return f"sum by (node) (increase(node_amazonefa_{counter}{{{NODE}}}[1h]))"


def _kinds() -> str:
    """The increase of each counter of errors in a day, with its name in the label ``kind``."""
    counted = (f"increase(node_amazonefa_{kind}{{{NODE}}}[24h])" for kind in _ERRORS)
    return " or ".join(
        f'label_replace({one}, "kind", "{kind}", "", "")' for kind, one in zip(_ERRORS, counted, strict=True)
    )


def efa() -> Dashboard:
    """By node, then what went wrong, then each device."""
    present = f"count by (node) (node_amazonefa_info{{{NODE}}})"
    expected = f"max by (node) (hyperpod_efa_interfaces_expected{{{NODE}}})"
    return board(
        BY_NAME["efa"],
        (
            (
                "Now",
                (
                    number(
                        "Sent by all nodes",
                        f"sum(rate(node_amazonefa_tx_bytes{{{NODE}}}[{RATE}]))",
                        look=figure(6, unit="Bps"),
                    ),
                    number("EFA devices", f"count(node_amazonefa_info{{{NODE}}})", look=figure(6)),
                    number(
                        "Nodes with fewer devices than they should have",
                        # A node without any device has none to count.
                        f"count(({present} or on (node) {expected} * 0) < on (node) {expected}) or vector(0)",
                        look=figure(6, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Unresponsive peers in an hour",
                        f"sum(increase(node_amazonefa_unresponsive_remote_events{{{NODE}}}[1h]))",
                        look=figure(6, steps=ANY_IS_BAD, decimals=0),
                    ),
                    graph("Sent", Query(_rate("tx_bytes")), look=_BYTES),
                    graph("Received", Query(_rate("rx_bytes")), look=_BYTES),
                    graph(
                        "RDMA",
                        Query(_rate("rdma_read_bytes"), "{{node}}, read"),
                        Query(_rate("rdma_write_bytes"), "{{node}}, written"),
                        look=_BYTES,
                    ),
                    graph(
                        "Send and receive, without RDMA",
                        Query(_rate("send_bytes"), "{{node}}, sent"),
                        Query(_rate("recv_bytes"), "{{node}}, received"),
                        look=_BYTES,
                    ),
                ),
            ),
            (
                "What went wrong",
                (
                    graph(
                        "Share of bytes sent again",
                        Query(f"{_rate('retrans_bytes')} / {_rate('tx_bytes')}"),
                        look=Look(unit="percentunit", steps=warn(0.0001, 0.01)),
                    ),
                    graph(
                        "Timeouts before a retransmission, an hour",
                        Query(_hour("retrans_timeout_events")),
                        look=Look(steps=warn(1, 100)),
                    ),
                    graph(
                        "Peers in trouble, as others see them, an hour",
                        Query(_hour("unresponsive_remote_events"), "{{node}}, unresponsive"),
                        Query(_hour("impaired_remote_conn_events"), "{{node}}, impaired"),
                        look=Look(steps=warn(1, 10)),
                    ),
                    graph("Packets dropped, an hour", Query(_hour("rx_drops")), look=Look(steps=warn(1, 1000))),
                    rows(
                        "Errors in 24 hours, by kind",
                        f"sum by (node, device, kind) ({_kinds()}) > 0",
                        "errors",
                        look=Look(width=24, empty="none", decimals=0),
                    ),
                ),
            ),
            (
                "Each device",
                (
                    graph("Sent", Query(_rate("tx_bytes", "node, device"), _EACH), look=_BYTES),
                    graph("Received", Query(_rate("rx_bytes", "node, device"), _EACH), look=_BYTES),
                    words(_ABOUT),
                ),
            ),
        ),
    )

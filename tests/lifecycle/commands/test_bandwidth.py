"""Bandwidth, read from what the tests of a network print, and rated."""

import pytest
from hyperpod_commands import bandwidth

from tests.lifecycle.commands.test_commands import NCCL, NCCOM
from tests.lifecycle.rig import group
from tests.rows import each

# As an old release of nccl-tests prints it: one half, and no root column.
OLD = """   134217728      33554432     float     sum    44510.9    3.02    3.02  1e-07
  4294967296    1073741824     float     sum    1427063    3.01    3.01      0
# Avg bus bandwidth: 1.18
"""


def test_both_forms_of_nccl_tests_output_are_read() -> None:
    new = bandwidth.rate("nccl", NCCL, 1.0)
    assert [(row.size, row.busbw, row.wrong) for row in new.rows] == [(8, 0.0, 0), (134217728, 48.30, 0)]
    assert (new.passed, new.average, new.wrong) == (True, 24.105, 0)
    old = bandwidth.rate("nccl", OLD, 1.0)
    assert [(row.time_us, row.busbw) for row in old.rows] == [(44510.9, 3.02), (1427063.0, 3.01)]
    # The first release's last column is the largest error, which is never quite 0.
    assert (old.passed, old.average, old.wrong) == (True, 1.18, 0)


def test_nccom_tests_output_is_read() -> None:
    found = bandwidth.rate("nccom", NCCOM, 1.0)
    assert [(row.size, row.type, row.busbw) for row in found.rows] == [
        (1048576, "bf16", 14.0),
        (134217728, "bf16", 37.01),
    ]
    assert (found.passed, found.average) == (True, 13.29)


@pytest.mark.parametrize(
    ("kind", "healthy", "sick"),
    [
        ("ml.p5.48xlarge", 350, 100),
        ("ml.p4d.24xlarge", 35, 10),
        ("ml.g5.48xlarge", 12, 4),
        ("ml.g5.16xlarge", 3.02, 1),
    ],
)
def test_the_threshold_lies_between_healthy_and_sick_nodes(kind: str, healthy: float, sick: float) -> None:
    limit = bandwidth.threshold("all_reduce", "nccl", group("w", kind).network_gbps, 2, 8)
    assert limit is not None
    assert sick < limit <= healthy


def test_the_threshold_follows_from_the_wire_the_share_of_gpus_and_the_collective() -> None:
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"):
        assert bandwidth.threshold(collective, "nccl", 3200, 2, 8) == pytest.approx(280)
        assert bandwidth.threshold(collective, "nccl", 3200, 16, 8) == pytest.approx(280)
        assert bandwidth.threshold(collective, "nccom", 800, 2, 32) == pytest.approx(35)
        assert bandwidth.threshold(collective, "gloo", 25, 2, 1) == pytest.approx(0.625)
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 2, 4, 0.5) == pytest.approx(140)
    assert bandwidth.threshold("alltoall", "nccl", 3200, 2, 8) == pytest.approx(280 / 8 * 15 / 8)
    assert bandwidth.threshold("sendrecv", "nccl", 3200, 2, 8) is None
    assert bandwidth.threshold("all_reduce", "nccl", 3200, 1, 8) is None
    assert bandwidth.threshold("all_reduce", "nccl", 0, 2, 8) is None


def test_the_reported_trn1_result_passes() -> None:
    limit = bandwidth.threshold("all_reduce", "nccom", 800, 2, 32)
    assert bandwidth.rate("nccom", NCCOM, limit).passed


@pytest.mark.parametrize(
    ("text", "limit", "reason"),
    [
        (NCCL, 50.0, "peak 48.30 GB/s is below 50.00 GB/s"),
        ("nothing", 1.0, "the test printed no result"),
        (NCCL.replace("48.30      0", "48.30      3"), 1.0, "3 wrong values: data was corrupted in transit"),
        # What nccl-tests prints of a million and more.
        (NCCL.replace("48.30      0", "48.30 2.68435e+08"), 1.0,
         "268435000 wrong values: data was corrupted in transit"),
        (NCCL.replace("0 OK", "4 FAILED"), 1.0, "out of bounds values: 4"),
        (NCCL.replace("48.30", "nan"), 1.0, "a row cannot be read: 134217728"),
        (NCCL.replace("48.30", "inf"), 1.0, "a row cannot be read: 134217728"),
        (NCCL.replace("24.1050", "-nan"), 1.0, "the average bus bandwidth is -nan"),
        # Another rank's words in the middle of a row, as they come from mpirun.
        (NCCL.replace("-1   5230.1", "-1ip-10-1-0-1:51001:51040 [0] NCCL WARN NET/OFI Request completed with error"),
         1.0, "a row cannot be read: 134217728"),
        (NCCL.rpartition("#")[0], 1.0, "the output is incomplete: it has no average bus bandwidth"),
        (NCCL.replace("48.30      0", "48.30    N/A").replace("48.12      0", "48.12    N/A")
         .replace("0.00      0", "0.00    N/A"), None,
         "nothing to rate: no threshold is known, and the test did not check its values"),
    ],
)  # fmt: skip
def test_what_is_slow_silent_wrong_or_unrated_fails_with_the_reason(
    text: str, limit: float | None, reason: str
) -> None:
    rating = bandwidth.rate("nccl", text, limit)
    assert not rating.passed
    # Of a row its first column.
    assert rating.reasons[0].partition("  ")[0] == reason
    lines = bandwidth.verdict(rating, bandwidth.hints("tcp"))
    assert lines[-1] == "FAIL"
    assert any("EFA expected" in line for line in lines)


# What nccl-tests, Open MPI, a shell and nccom-test say when they fail, and what a sound test may say as well.
FAILED = (
    "n1:51001:51040 [0] NCCL WARN NET/OFI Request completed with error. RC: 4",
    "n1: NCCL failure: unhandled system error",
    "n2: Test CUDA failure common.cu:958 'out of memory'",
    "n2: Test failure common.cu:401",
    "mpirun noticed that process rank 3 with PID 4242 on node n2 exited on signal 6 (Aborted).",
    "Process name: [[1,1],3] Exit code: 1 exited with non-zero status",
    "bash: line 1: 4242 Aborted (core dumped) all_reduce_perf",
    "bash: line 1: 4242 Segmentation fault all_reduce_perf",
    "1 errors found",
    "the test failed",
    "Failure running neuron-bench - log file /tmp/a.log",
)
MAYBE = (
    "n1:51001:51040 [0] NCCL WARN NET/OFI no RDMA",
    "an error of the network",
    "4242 Aborted",
    "Killed",
    "mpirun: command not found",
)


@each(FAILED)
def test_a_result_does_not_hide_other_errors(line: str) -> None:
    rating = bandwidth.rate("nccl", f"{NCCL}{line}\n# {line}\n", 1.0)
    assert (rating.passed, rating.reasons) == (False, [line])


@each((*FAILED, *MAYBE))
def test_a_test_that_did_not_finish_says_what_it_complained_of(line: str) -> None:
    rating = bandwidth.rate("nccl", f"{NCCL.rpartition('#')[0]}  {line}\n", 1.0)
    assert rating.reasons == ["the output is incomplete: it has no average bus bandwidth", line]


@each(MAYBE)
def test_a_warning_of_a_test_that_finished_well_is_no_failure(line: str) -> None:
    assert bandwidth.rate("nccl", f"{NCCL}{line}\n", 1.0).reasons == []


def test_of_many_complaints_and_rows_three_are_shown() -> None:
    row = "           8             2     float     sum      -1    nan    0.00    0.00      0"
    rating = bandwidth.rate("nccl", f"{NCCL}{(FAILED[1] + chr(10)) * 5}{(row + chr(10)) * 5}", 1.0)
    assert rating.reasons == [f"a row cannot be read: {row.strip()}"] * 3 + [FAILED[1]] * 3


@pytest.mark.parametrize("label", ["[1,3]<stdout>:", "3: ", " 12:"])
def test_a_rank_before_each_line_changes_nothing(label: str) -> None:
    labelled = "".join(f"{label}{line}\n" for line in NCCL.splitlines())
    assert bandwidth.rate("nccl", labelled, 1.0) == bandwidth.rate("nccl", NCCL, 1.0)


def test_the_verdict_says_every_figure_and_what_to_look_at() -> None:
    good = bandwidth.rate("nccl", NCCL, 40.0)
    assert bandwidth.verdict(good, bandwidth.hints("tcp")) == [
        "Average bus bandwidth: 24.11 GB/s",
        "Peak bus bandwidth:    48.30 GB/s",
        "Threshold:             40.00 GB/s",
        "Wrong values:          0",
        "PASS",
    ]
    shared = [
        "  - sinfo -R and /fsx/.hyperpod/nodes/*.json: nodes that came up degraded",
        "  - run it again with NCCL_DEBUG=INFO, which shows the network that each rank chose",
        "  - run it on pairs of nodes: a slow node slows every pair that it is in",
    ]
    bad = bandwidth.rate("nccom", NCCOM, None, "the test ended with status 1: no output")
    figures = [
        "Average bus bandwidth: 13.29 GB/s",
        "Peak bus bandwidth:    37.01 GB/s",
        "Threshold:             none (only correctness is rated)",
        "Wrong values:          not checked",
        "  nothing to rate: no threshold is known, and the test did not check its values",
        "  the test ended with status 1: no output",
        "Look at:",
    ]
    tcp = "  - the transport is tcp: is EFA expected on these nodes? `fi_info -p efa` on a worker"
    assert bandwidth.verdict(bad, bandwidth.hints("tcp")) == [*figures, tcp, *shared, "FAIL"]
    efa = [
        "  - the security group must allow all traffic from and to itself, or EFA does not work",
        "  - `fi_info -p efa -t FI_EP_RDM` on a worker should list one domain per EFA interface",
        "  - all nodes must be in one Availability Zone: EFA traffic cannot leave it",
    ]
    assert bandwidth.verdict(bad, bandwidth.hints("efa-rdma")) == [*figures, *efa, *shared, "FAIL"]


def test_values_that_have_no_place_are_not_counted_as_wrong() -> None:
    """alltoall has no in-place form to check."""
    rating = bandwidth.rate("nccl", NCCL.replace("48.30      0", "48.30    N/A"), None)
    assert (rating.passed, rating.wrong) == (True, 0)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        (NCCOM, False),  # nobody knows whether values were checked, and one node has no threshold
        (f"nccom-test allr --nworkers 32 --datatype fp32 --check\n{NCCOM}", True),
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n{NCCOM}", True),
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n", False),  # the check said nothing
        (f"nccom-test allr\n{NCCOM}nccom-test allr --check\n{NCCOM.split('Avg')[0]}", False),  # nor got to its end
        ("nccom-test allr --check\n 33554432   Failure running neuron-bench - log file /tmp/a.log\n", False),
        (f"nccom-test allr --check\n{NCCOM}1 errors found - test failed\n", False),
    ],
)
def test_nccom_test_passes_only_where_something_was_rated(text: str, passed: bool) -> None:
    rating = bandwidth.rate("nccom", text, None)
    assert rating.passed is passed
    assert not passed or rating.wrong == 0
    shown = "\n".join(bandwidth.verdict(rating, []))
    assert ("not checked" in shown) is (rating.wrong is None)

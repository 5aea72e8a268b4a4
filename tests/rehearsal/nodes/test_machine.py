"""What instance types look like from inside, and the transport that follows."""

import pytest

from components.catalogue.accelerators import CATALOGUE
from rehearsal.nodes.checks import expected_environment, expected_transport
from rehearsal.nodes.machine import Machine
from rehearsal.nodes.outcome import STEP
from tests.rows import each


@pytest.mark.parametrize(
    ("kind", "efa", "transport"),
    [
        ("ml.p5.48xlarge", None, "efa-rdma"),
        ("ml.g5.48xlarge", None, "efa-sendrecv"),
        ("ml.g5.16xlarge", None, "tcp"),
        ("ml.g5.16xlarge", True, "efa-sendrecv"),
        ("ml.trn1.32xlarge", None, "efa-rdma"),
        ("ml.m5.2xlarge", None, "tcp"),
    ],
)
def test_transport(kind: str, efa: bool | None, transport: str) -> None:
    assert expected_transport(Machine(CATALOGUE[kind], efa)) == transport


def test_rdma_is_asked_for_only_where_the_device_has_it() -> None:
    assert expected_environment(Machine(CATALOGUE["ml.p5.48xlarge"]))["FI_EFA_USE_DEVICE_RDMA"] == "1"
    assert expected_environment(Machine(CATALOGUE["ml.g5.48xlarge"]))["FI_EFA_USE_DEVICE_RDMA"] == "0"
    assert expected_environment(Machine(CATALOGUE["ml.g5.16xlarge"]))["FI_EFA_USE_DEVICE_RDMA"] is None


@each(CATALOGUE.keys())
def test_answers_agree_with_the_catalogue(kind: str) -> None:
    row, machine = CATALOGUE[kind], Machine(CATALOGUE[kind])
    facts = machine.as_json("i-1")
    assert facts["gpus"] + facts["chips"] == row.accelerators
    assert bool(facts["compute_capability"]) == bool(facts["gpus"])
    assert facts["efa_devices"] == len(facts["efa_names"]) == len(set(facts["efa_names"]))
    assert ("efa" in machine.modules) == bool(facts["efa_devices"])


def test_a_step_s_line_is_understood() -> None:
    match = STEP.match("step fsx ... ok 0.43s  fs-0b62 mounted at /fsx")
    assert match is not None
    assert match.groups() == ("fsx", "ok", "0.43")
    assert STEP.match("step munge ... not run 0.00s  needs fsx")
    assert not STEP.match("step fsx failed: no file system")

"""`hyperpod types`: every type that HyperPod takes, with what decides between them."""

from typing import Any

import pytest

from components.catalogue.accelerators import CATALOGUE
from operations.commands import types as verb
from operations.failures import Exit
from tests.operations.aws import ended, ended_json, run
from tests.rows import each


def found(*options: str) -> dict[str, dict[str, Any]]:
    rows = ended_json(Exit.GOOD, "types", *options)
    return {row["name"]: row for row in rows}


def test_every_type_that_hyperpod_takes_is_listed_with_its_facts() -> None:
    rows = found()
    assert list(rows) == [row.name for row in CATALOGUE.values() if row.hyperpod]
    p5, g7e = rows["ml.p5.48xlarge"], rows["ml.g7e.48xlarge"]
    assert (p5["hourly_usd"], p5["quota"]) == (66.048, "ml.p5.48xlarge for cluster usage")
    assert (p5["accelerators"], p5["accelerator_memory_gib"], p5["efa_interfaces"], p5["nvme_disks"]) == (8, 80, 32, 8)
    assert (g7e["hourly_usd"], g7e["estimated_hourly_usd"], g7e["price_basis"]) == (None, 33.14432, "ec2")


@each(
    {
        "a part of the name": (("p5en",), {"ml.p5en.48xlarge"}),
        "the accelerator": (("a100",), {"ml.p4d.24xlarge", "ml.p4de.24xlarge"}),
        "Trainium with disks": (("trn1n", "--accelerator", "trainium", "--nvme"), {"ml.trn1n.32xlarge"}),
        "Arm with EFA": (("c8g", "--arm", "--efa"), {"ml.c8g.24xlarge", "ml.c8g.48xlarge"}),
        "no accelerators": (("i3en.3", "--accelerator", "none"), {"ml.i3en.3xlarge"}),
        "a price": (("p4", "--max-hourly", "30"), {"ml.p4d.24xlarge"}),
    }
)
def test_filters_leave_what_fits_all_of_them(options: tuple[str, ...], names: set[str]) -> None:
    assert set(found(*options)) == names


def test_what_fits_nothing_is_bad_input_with_the_nearest_names() -> None:
    _, err = ended(Exit.BAD_INPUT, "types", "ml.p5.48large")
    assert "did you mean ml.p5.48xlarge" in err


def test_an_estimate_and_measured_doubt_are_marked() -> None:
    _, out, _ = run("types", "g5.")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["ml.g5.xlarge"].split()[-1] == "~1.006"
    assert lines["ml.g5.16xlarge"].split()[-1] == "5.120"
    assert " 1? " in lines["ml.g5.16xlarge"]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (40, ["type", "EFA", "$/hour"]),
        (120, None),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_word(
    width: int, columns: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run("types")
    header, *lines = out.splitlines()
    names = [column if isinstance(column, str) else column[0] for column in verb._COLUMNS]
    assert [name for name in names if name in header] == (columns or names)
    rows = [line for line in lines if line.startswith("ml.")]
    assert len(rows) == len([row for row in CATALOGUE.values() if row.hyperpod])
    assert max(map(len, rows)) <= width

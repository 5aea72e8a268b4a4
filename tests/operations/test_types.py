"""Every type of resource that a stack has is known where resources are timed, tagged, looked for and counted."""

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any

from components.common.names import ROLE_KINDS
from components.estimates.quotas import needed
from operations.deployment import leftovers, tagged
from operations.engine.durations import durations
from tests.golden.stacks import GOLDEN, told
from tests.rows import each
from tests.support import config

with Path(__file__).with_name("types.csv").open(newline="") as file:
    ROWS = {row["type"]: row for row in csv.DictReader(file)}
# What only groups others, or says how to reach them.
_NOT_MADE = ("hyperpod:index:", "pulumi:")


@cache
def resources() -> dict[str, list[dict[str, Any]]]:
    """The inputs of every resource of the golden configurations, by type."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in GOLDEN:
        for entries in told(name).values():
            for entry in entries.values():
                if isinstance(entry, dict) and "type" in entry and not entry["type"].startswith(_NOT_MADE):
                    kind = "kubernetes:*" if entry["type"].startswith("kubernetes:") else entry["type"]
                    found.setdefault(kind, []).append(entry.get("inputs") or {})
    return found


def test_the_table_has_exactly_the_types_that_stacks_have() -> None:
    assert ROWS.keys() == resources().keys()


@each(ROWS.keys())
def test_a_type_has_a_duration(kind: str) -> None:
    assert kind in durations() or kind.startswith("eks:index:")


@each(ROWS.keys())
def test_what_carries_tags_is_known_by_its_arn(kind: str) -> None:
    """Or a tagged one that destroy has left is reported as unknown, whatever it is."""
    arn = ROWS[kind]["arn"]
    assert any(inputs.get("tags") or inputs.get("tagsAll") for inputs in resources()[kind]) == (arn != "-")
    known = {*tagged._kinds(), *tagged._ELSEWHERE}
    assert arn == "-" or arn in known or arn.split(":")[0] in known


@each(ROWS.keys())
def test_leftovers_are_found_or_deleted_with_something_that_is_found(kind: str) -> None:
    source = Path(leftovers.__file__).read_text()
    looked_for = {*re.findall(r'kind="([^"]+)"', source), leftovers._FILE_SYSTEM}
    looked_for |= {row[0] for row in leftovers._TAGGED} | {one.name for one in tagged._kinds().values()}
    there = ROWS[kind]["leftover"]
    if there.startswith("with "):
        there = ROWS[there.removeprefix("with ")]["leftover"]
    assert there in looked_for


def test_every_quota_is_that_of_a_type_or_the_type_says_why_there_is_none() -> None:
    codes = {quota.code for chosen in GOLDEN.values() for quota in needed(config(chosen.stack, **chosen.settings))}
    for kind, row in ROWS.items():
        assert row["quota"] in codes or re.fullmatch(r"none: .{5,}", row["quota"]), f"{kind}: {row['quota']}"


def test_the_golden_stacks_have_exactly_the_known_kinds_of_roles() -> None:
    names = [str(inputs.get("name", "")) for inputs in resources()["aws:iam/role:Role"]]
    found = [re.fullmatch(r"CLUSTER-[a-z]+(?:-gov)?-[a-z]+-\d-(.+)-DIGEST", name) for name in names]
    assert {re.sub(r"team-\d+", "team", match[1]) for match in found if match} == {*ROLE_KINDS, "team"}

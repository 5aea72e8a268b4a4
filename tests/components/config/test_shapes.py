"""Whatever type a value has, every problem is told, in one form, and none that is not there."""

import json
from typing import Any

import pytest

from components.config import ConfigError, Settings, parse
from tests.components.config.refusals import EKS, GROUP, problems


def problems_raw(**settings: Any) -> dict[str, str]:
    """Past the schema of Pulumi.yaml, as a program sees values under mocks."""
    values = {
        f"hyperpod:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()
    }
    with pytest.raises(ConfigError) as refused:
        parse({"aws:region": "us-west-2", **values})
    return {problem.key: str(problem) for problem in refused.value.problems}


def test_a_malformed_key_hides_no_other_keys_problem() -> None:
    assert {"hyperpod:protect", "hyperpod:fsx.throughput"} <= set(
        problems_raw(protect="perhaps", fsx={"throughput": 1})
    )


def test_a_malformed_value_hides_nothing_beside_it() -> None:
    found = problems_raw(fsx={"compression": "ZSTD", "throughput": 300, "backupDays": -1})
    assert {f"hyperpod:fsx.{key}" for key in ("compression", "throughput", "backupDays")} == set(found)
    workers = [{"instanceType": "ml.g5.16xlarge", "count": -1}, {**GROUP, "count": "many", "volumeGiB": 99999}]
    assert {f"hyperpod:workers{path}" for path in ("[0].name", "[0].count", "[1].count", "[1].volumeGiB")} == set(
        problems_raw(workers=workers)
    )


def test_a_value_of_the_wrong_type_is_reported_with_the_problems_of_all_other_keys() -> None:
    found = problems(workers="oops", size="larg", colour="red", network={"cidr": "10.0.0.0/24"})
    assert found == {
        "hyperpod:workers": "hyperpod:workers: 'oops' is not an array; a list, as [item, item]",
        "hyperpod:size": "hyperpod:size: 'larg' is not allowed; one of 'small', 'medium' or 'large'",
        "hyperpod:colour": f"hyperpod:colour: unknown key; known here: {', '.join(Settings.keys())}",
        "hyperpod:network.cidr": "hyperpod:network.cidr: 10.0.0.0/24 is too small for the public and "
        "control-plane subnets; /20 or larger",
    }
    found = problems(
        protect="yes", lostNodeSeconds="2.5", workers=[{**GROUP, "count": True}, 7], tags={"a": 1, "*": "b"}
    )
    assert {key.removeprefix("hyperpod:"): said.split(": ", 1)[1] for key, said in found.items()} == {
        "protect": "'yes' is not a boolean; true or false",
        "lostNodeSeconds": "'2.5' is not an integer; a whole number",
        "workers[0].count": "True is not an integer; a whole number",
        "workers[1]": "7 is not an object; keys with values, as {key: value}",
        "tags.a": "1 is not a string; a text, in quotes",
        "tags.*": "'*' in a tag; letters, digits, spaces and _.:/=+-@",
    }


def test_what_is_missing_or_malformed_makes_no_problem_elsewhere() -> None:
    unnamed = [{"instanceType": "ml.g5.16xlarge"}] * 2
    assert set(problems_raw(workers=unnamed)) == {"hyperpod:workers[0].name", "hyperpod:workers[1].name"}
    taint = {"key": "gpu", "effect": "Never"}
    assert set(problems_raw(**EKS, workers=[{**GROUP, "taints": [taint, {"key": "a"}]}])) == {
        f"hyperpod:workers[0].taints[{number}].effect" for number in (0, 1)
    }
    for settings in ({"teams": [{"name": "a"}]}, {"login": {"instanceType": "ml.m5.large"}}):
        assert set(problems_raw(orchestrator="kubernetes", **settings)) == {"hyperpod:orchestrator"}
    trainium = [{"name": "w", "instanceType": "ml.trn1.32xlarge"}]
    assert set(problems_raw(accelerator="trainum", workers=trainium)) == {"hyperpod:accelerator"}

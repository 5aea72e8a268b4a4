"""Bad configuration is refused before anything is created, with the key named and all problems at once."""

import json
from typing import Any

import pytest
import yaml

from components.config import ConfigError, Settings, parse
from tests.components.config.refusals import EKS, GROUP, Cases, problems
from tests.golden.stacks import KEY
from tests.support import READY_STACKS, ROOT, config, project

LONG = "a" * 64
BAD: Cases = {
    "unknown key": {"clusterNmae": "x"},
    "64-character name": {"clusterName": LONG},
    "64-character name somewhere": {"clusterName": LONG, "region": "mars-east-1"},
    "no region": {"region": ""},
    "a key inside another without --path": {"fsx.storageGiB": 4800},
    "upper-case name": {"clusterName": "Prod"},
    "trailing hyphen": {"clusterName": "prod-"},
    "malformed role ARN": {"existingRoleArn": "arn:aws:iam::1:role/x"},
    "role of another partition": {"existingRoleArn": "arn:aws-us-gov:iam::123456789012:role/x"},
    "malformed boundary": {"permissionsBoundaryArn": "arn:aws:iam::123456789012:role/x"},
    "boundary of another partition": {"permissionsBoundaryArn": "arn:aws-us-gov:iam::aws:policy/PowerUserAccess"},
    "not a public key": {"sshPublicKey": "ssh-rsa oops"},
    "reserved tag": {"tags": {"aws:x": "y"}},
    "characters no tag takes": {"tags": {"team": "a, b; c!"}},
    "character no tag's key takes": {"tags": {"cost*": "a"}},
    "tag's value of 257 characters": {"tags": {"a": "b" * 257}},
    "more tags than a resource has": {"tags": {f"t{n}": "" for n in range(41)}},
    "a login key for EKS": {**EKS, "sshPublicKey": KEY},
    "bucket by its address": {"fsx": {"linkedBucket": "s3://data"}},
    "unknown orchestrator": {"orchestrator": "kubernetes"},
    "mistyped region": {"region": "us-west2"},
    "unknown region": {"region": "mars-east-1"},
}


@pytest.mark.parametrize("stack", READY_STACKS)
def test_every_ready_stack_is_good(stack: str) -> None:
    assert config(stack).variant in ("slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")


@pytest.mark.parametrize(("region", "fits"), [("us-west-2", 34), ("ap-southeast-1", 29), ("us-gov-west-1", 30)])
def test_the_region_limits_the_name_through_bucket_and_roles(region: str, fits: int) -> None:
    parse({"aws:region": region, "hyperpod:clusterName": "a" * fits})
    with pytest.raises(ConfigError, match=f"at most {fits} in {region}"):
        parse({"aws:region": region, "hyperpod:clusterName": "a" * (fits + 1)})


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        clusterName="Bad-",
        colour="red",
        availabilityZoneId="use1-az1",
        fsx={"storageGiB": 5},
        network={"cidr": "10.0.0.0/30"},
        workers=[{"name": "w", "instanceType": "ml.p9.1xlarge", "count": -1, "volumeGiB": 99999}],
    )
    expected = ["clusterName", "colour", "availabilityZoneId", "fsx.storageGiB", "network.cidr"]
    expected += [f"workers[0].{field}" for field in ("instanceType", "count", "volumeGiB")]
    assert {f"hyperpod:{key}" for key in expected} <= set(found)


def test_every_letter_digit_and_space_may_be_in_a_tag() -> None:
    config(tags={"Équipe 2": "Forschung: a/b_c=d+e-f@g.h", "empty": ""})


@pytest.mark.parametrize(
    ("size", "preset"), [("small", (2, 1200, 500)), ("medium", (8, 4800, 500)), ("large", (32, 14400, 1000))]
)
def test_a_size_fills_in_what_is_not_given_and_explicit_keys_win(size: str, preset: tuple[int, int, int]) -> None:
    filled = config("slurm-gpu", size=size)
    assert (filled.worker_groups[0].count, filled.fsx_gib, filled.worker_groups[0].volume_gib) == preset
    given = config(size=size, fsx={"storageGiB": 2400}, workers=[{**GROUP, "count": 3, "volumeGiB": 100}])
    assert (given.worker_groups[0].count, given.fsx_gib, given.worker_groups[0].volume_gib) == (3, 2400, 100)


def test_the_schema_and_the_typed_settings_agree() -> None:
    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    fields = {field.alias or name: field for name, field in Settings.model_fields.items()}
    assert set(schema) == set(fields)
    defaults = Settings.model_validate({key: entry["default"] for key, entry in schema.items()})
    assert defaults == Settings()
    assert all(entry["description"] for entry in schema.values())


def test_broken_yaml_is_reported_with_file_and_line(tmp_path: Any) -> None:
    from operations.project.loading import load_project
    from operations.project.stack_file import ProjectError

    (tmp_path / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    (tmp_path / "Pulumi.bad.yaml").write_text("config:\n  hyperpod:size: [small\n")
    with pytest.raises(ProjectError, match=r"Pulumi.bad.yaml, line 3"):
        load_project(tmp_path, "bad")


def test_config_values_are_text_as_the_engine_hands_them_over() -> None:
    values = project(workers=[GROUP], protect=True).config
    assert json.loads(values["hyperpod:workers"]) == [GROUP]
    assert values["hyperpod:protect"] == "true"

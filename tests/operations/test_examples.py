"""The configuration that pages show is right: every example loads, every key exists, every figure is today's."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name

from components.config import ConfigError, parse
from components.estimates.cost import estimate
from tests.support import ROOT, config, project
from tools.pages import reference

PAGES = [str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))]
# A key of a stack's file in a block of code, and the lines that belong to it.
_KEY = re.compile(r"^    hyperpod:\w+:.*\n(?:     +\S.*\n)*", re.M)


def examples(page: str) -> Iterator[dict[str, Any]]:
    """What each block of code that shows a part of a stack's file says."""
    for block in re.findall(r"(?:^    .*\n)+", (ROOT / page).read_text(), re.M):
        if keys := _KEY.findall(block):
            yield yaml.safe_load("".join(keys))


SHOWN = [(page, example) for page in PAGES for example in examples(page)]


def test_there_are_examples_of_what_is_asked_for_most() -> None:
    shown = {key for page, example in SHOWN if page == "docs/configuration.md" for key in example}
    assert {f"hyperpod:{key}" for key in ("workers", "fsx", "network", "teams", "users", "slurm")} <= shown
    assert len(SHOWN) >= 14


@pytest.mark.parametrize(("page", "example"), SHOWN, ids=[f"{page} {'+'.join(example)}" for page, example in SHOWN])
def test_every_example_is_a_configuration(
    page: str, example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = [project(stack).config for stack in ("slurm-gpu", "eks-gpu")]
    # A file that an example names is the one to copy.
    shutil.copy(ROOT / "docs" / "people.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    refused = []
    for stack in stacks:
        try:
            parse({**stack, **example})
        except ConfigError as error:
            refused.append(str(error))
    assert len(refused) < len(stacks), "\n".join(refused)


def test_every_key_that_a_page_sets_exists() -> None:
    known = {one.path for top in reference.found() for one in (top, *top.below())}
    for page in PAGES:
        for line in re.findall(r"pulumi config set ([^\n#`]+)", (ROOT / page).read_text()):
            for path in re.findall(r"hyperpod:([\w.\[\]]+)", line):
                name = re.sub(r"\[\d+\]", "", path)
                assert name in known or name == "KEY", f"{page} sets {path}"


# Commands that the AWS CLI has beside those of AWS's API.
_OWN = {
    *("s3 mb", "s3 sync", "ecr get-login-password", "eks get-token", "eks update-kubeconfig", "sso login"),
    *("configure export-credentials", "configure list-profiles", "configure sso"),
}


def test_every_command_of_the_aws_cli_has_its_operation_and_options() -> None:
    """Commands and options of the CLI are the API's names with hyphens (AWS CLI User Guide, "Command structure")."""
    session = botocore.session.get_session()
    seen = set()
    for page in PAGES:
        text = (ROOT / page).read_text().replace("\\\n", " ")
        for service, verb, rest in re.findall(r"(?:`|    |\$\()aws ([a-z0-9-]+) ([a-z][a-z0-9-]+)([^\n`#]*)", text):
            # What the API calls S3; `aws s3` has commands of its own.
            service = "s3" if service == "s3api" else service
            if service not in session.get_available_services() or f"{service} {verb}" in _OWN:
                assert f"{service} {verb}" in _OWN, f"{page}: aws {service} {verb}"
                continue
            seen.add(verb)
            operations = session.get_service_model(service)
            names = {xform_name(name, "-"): name for name in operations.operation_names}
            assert verb in names, f"{page}: aws {service} {verb}"
            shape = operations.operation_model(names[verb]).input_shape
            options = {xform_name(member, "-") for member in shape.members} if shape else set()
            for option in re.findall(r" --([a-z-]+)", rest):
                assert option in options | {"region", "query", "output", "profile"}, f"{page}: {verb} --{option}"
    assert {"create-data-repository-task", "describe-training-plan"} <= seen


def test_what_a_parked_cluster_costs_is_what_the_page_says() -> None:
    text = (ROOT / "docs" / "saving.md").read_text()
    for stack in ("slurm-gpu", "eks-gpu"):
        workers = [
            {**group, "count": 0} if group["name"] == "workers" else group
            for group in json.loads(project(stack).config["hyperpod:workers"])
        ]
        assert f"${estimate(config(stack, workers=workers)).hourly_usd:.2f}" in text
    assert f"${estimate(config('slurm-gpu')).hourly_usd:.0f}" in text
    assert f"${estimate(config('dev')).hourly_usd:.2f}" in text

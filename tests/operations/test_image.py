"""The jobs' image: one recipe, one tag, the stack's own registry."""

import base64
import json
import re
import stat
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from operations import cli
from operations.failures import Exit
from operations.jobs.specs import JOBS
from operations.kubernetes import image
from tests.golden.stacks import DALLAS
from tests.operations.aws import ended
from tests.support import ROOT, config

REPOSITORY = "123456789012.dkr.ecr.us-west-2.amazonaws.com/eks-gpu/training"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An account with the stack's repository."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        boto3.client("ecr", "us-west-2").create_repository(repositoryName="eks-gpu/training")
        yield


def test_another_recipe_has_another_tag(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n")
    first = image.tag(tmp_path)
    (tmp_path / "Dockerfile").write_text("FROM b\n")
    assert re.fullmatch(r"[0-9a-f]{12}", first)
    assert image.tag(tmp_path) != first


@pytest.mark.usefixtures("registry")
def test_without_build_it_prints_commands_that_hold_no_password() -> None:
    out, err = ended(Exit.GOOD, "job", "image", "eks-gpu")
    assert f"docker push {REPOSITORY}:" in out
    assert "get-login-password" in out
    assert "--image" in err


@pytest.mark.usefixtures("registry")
def test_where_no_worker_is_x86_it_says_how_to_build_for_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    grace = config("eks-gpu", **DALLAS, workers=[{"name": "grace", "instanceType": "ml.p6e-gb200.36xlarge"}])
    monkeypatch.setattr("operations.target.checked", lambda values: grace)
    assert "--platform linux/arm64" in ended(Exit.BAD_INPUT, "job", "image", "eks-gpu")[1]


@pytest.mark.usefixtures("registry")
def test_build_logs_in_through_standard_input_builds_and_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {log}\nif [ "$1" = login ]; then cat > {tmp_path}/password; fi\n')
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out, _ = ended(Exit.GOOD, "job", "image", "eks-gpu", "--build", "--json")
    calls = log.read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["login", "build", "push"]
    token = boto3.client("ecr", "us-west-2").get_authorization_token()["authorizationData"][0]["authorizationToken"]
    password = base64.b64decode(token).decode().partition(":")[2]
    assert (tmp_path / "password").read_text() == password
    assert password not in log.read_text()
    assert json.loads(out)["image"].startswith(f"{REPOSITORY}:")


@pytest.mark.usefixtures("registry")
def test_an_image_that_the_registry_has_is_named_by_its_digest() -> None:
    ecr = boto3.client("ecr", "us-west-2")
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": kind, "config": {"digest": "sha256:" + "a" * 64}, "layers": []}
    )
    put = {"repositoryName": "eks-gpu/training", "imageManifest": manifest}
    digest = ecr.put_image(**put, imageTag=image.tag(ROOT / "jobs/image"))["image"]["imageId"]["imageDigest"]
    assert json.loads(ended(Exit.GOOD, "job", "image", "eks-gpu", "--json")[0])["image"] == f"{REPOSITORY}@{digest}"


@pytest.mark.usefixtures("registry")
def test_a_failed_build_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1" = login ]\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "docker build ended with status 1" in ended(Exit.FAILED, "job", "image", "eks-gpu", "--build")[1]


@pytest.mark.usefixtures("registry")
def test_without_docker_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Docker is not installed" in ended(Exit.CANNOT_KNOW, "job", "image", "eks-gpu", "--build")[1]


@pytest.mark.usefixtures("registry")
def test_a_trainer_that_no_public_image_has_is_refused_until_its_own_image_is_named() -> None:
    missing = ended(Exit.BAD_INPUT, "job", "print", "eks-gpu", "torchtitan")[1]
    assert "no public image has what torchtitan imports" in missing
    command = "hyperpod job image eks-gpu --for torchtitan --build"
    assert command in missing
    out, _ = ended(Exit.GOOD, *command.split()[1:-1])
    assert f"{image.tag(ROOT / 'jobs/image-torchtitan')} jobs/image-torchtitan" in out
    assert "torchtitan_train.py" in ended(Exit.GOOD, "job", "print", "eks-gpu", "torchtitan", "--image", "a:1")[0]
    assert "--for is for torchtitan" in ended(Exit.BAD_INPUT, "job", "image", "eks-gpu", "--for", "nemo")[1]


@pytest.mark.parametrize(("stack", "word"), [("dev", "Slurm"), ("eks-trainium", "for GPUs")])
def test_a_stack_that_has_no_use_for_it_is_told(stack: str, word: str) -> None:
    assert word in ended(Exit.BAD_INPUT, "job", "image", stack)[1]


@pytest.mark.parametrize(
    ("job", "recipe"), [("nanogpt", image.RECIPE), *((name, job.recipe) for name, job in JOBS.items() if job.recipe)]
)
def test_a_recipe_has_the_base_that_its_jobs_use_and_everything_in_it_is_pinned(job: str, recipe: str) -> None:
    text = (ROOT / recipe / "Dockerfile").read_text()
    base = re.search(r"^ARG BASE=(\S+)", text, re.MULTILINE)
    assert base
    assert base[1] == JOBS[job].image("gpu", config("eks-gpu").region)
    for line in (ROOT / recipe / "requirements.txt").read_text().splitlines():
        if not line.startswith("#"):
            assert re.fullmatch(r"[\w-]+==[\w.]+ +# .+", line), line


def test_a_file_of_another_name_is_another_recipe(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n")
    first = image.tag(tmp_path)
    (tmp_path / "Dockerfile").rename(tmp_path / "Containerfile")
    assert image.tag(tmp_path) != first


def test_the_image_is_for_the_architecture_of_its_base_on_whatever_machine_it_is_built() -> None:
    build, push = image.plan(REPOSITORY).commands
    assert build[:4] == ("docker", "build", "--platform", "linux/amd64")
    assert push == ("docker", "push", image.plan(REPOSITORY).image)


@pytest.mark.usefixtures("registry")
def test_one_x86_worker_group_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {"grace": "ml.p6e-gb200.36xlarge", "hopper": "ml.p5.48xlarge"}
    mixed = config("eks-gpu", **DALLAS, workers=[{"name": name, "instanceType": kind} for name, kind in types.items()])
    monkeypatch.setattr("operations.target.checked", lambda values: mixed)
    boto3.client("ecr", mixed.region.name).create_repository(repositoryName="eks-gpu/training")
    assert cli.main(["job", "image", "eks-gpu"]) == Exit.GOOD

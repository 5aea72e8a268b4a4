"""The folder of packages for containers is refused before anything is created, with everything that is wrong."""

from __future__ import annotations

import hashlib
from unittest.mock import patch

import pytest

from components.config import load
from components.schema.problems import ConfigError
from components.slurm import container_packages
from tests.components.config.refusals import Tree, told_of
from tests.rows import each


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# Much less than what nodes may download: it is read whole.
LIMIT = 1000
LARGE = "x" * (LIMIT + 1)
ONE = f"{digest('1')}  one\n"
BAD: dict[str, tuple[Tree, str]] = {
    "no folder": (None, "there is no folder mine; hyperpod download containers FOLDER fills one"),
    "no digests": ({"one": "1"}, "mine has no SHA256SUMS; hyperpod download containers FOLDER fills one"),
    "no digest": ({"SHA256SUMS": ""}, "mine/SHA256SUMS has no digest; hyperpod download containers FOLDER fills one"),
    "a package that is missing": ({"SHA256SUMS": ONE}, "mine/one is missing, which SHA256SUMS names; hyperpod down"),
    "another package": (
        {"SHA256SUMS": ONE, "one": "other"},
        f"mine/one has the digest {digest('other')}; it should have {digest('1')}: download it again",
    ),
    "a package without a digest": (
        {"SHA256SUMS": ONE, "one": "1", "four": ""},
        "SHA256SUMS has no digest of four; (cd mine && sha256sum four >> SHA256SUMS), or move it elsewhere",
    ),
    "an image of a container": (
        {"SHA256SUMS": f"{digest(LARGE)}  one\n", "one": LARGE},
        f"mine has {LIMIT + 1} bytes; at most {LIMIT}: no container images",
    ),
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    with patch.object(container_packages, "MOST_BYTES", LIMIT):
        return told_of(tree, lambda folder: container_packages.problems({"containerPackages": folder}))


@each(BAD)
def test_a_folder_that_is_not_as_it_should_be_is_refused(tree: Tree, said: str) -> None:
    (problem,) = told(tree)
    assert problem.startswith(f"hyperpod:slurm.containerPackages: {said}")


def test_files_that_are_what_their_digests_say_are_taken() -> None:
    assert told({"SHA256SUMS": ONE, "one": "1", ".gitignore": ""}) == []
    assert container_packages.problems({}) == container_packages.problems("x") == []


def test_every_file_that_is_not_as_it_should_be_is_named() -> None:
    assert len(told({"SHA256SUMS": ONE + ONE.replace("one", "two"), "one": "other", "four": ""})) == 3


def test_a_deployment_reports_it_beside_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "aws:region": "us-west-2",
        "hyperpod:slurm": '{"containerPackages": "nowhere"}',
        "hyperpod:clusterName": "NO",
    }
    monkeypatch.setattr("pulumi.runtime.config.get_config_env", lambda: values)
    with pytest.raises(ConfigError) as refused:
        load()
    found = [(problem.key, problem.what) for problem in refused.value.problems]
    assert ("hyperpod:slurm.containerPackages", "there is no folder nowhere") in found
    assert "hyperpod:clusterName" in {key for key, _ in found}

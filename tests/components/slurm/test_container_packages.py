"""The folder of packages for containers is refused before anything is created, with everything that is wrong."""

import hashlib
from unittest.mock import patch

import pytest

from components.config import load
from components.schema.problems import ConfigError
from components.slurm import container_packages
from tests.components.config.refusals import Tree, told_of


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# Much less than what nodes may download: it is read whole.
LIMIT = 1000
LARGE = "x" * (LIMIT + 1)
ONE = f"{digest('1')}  one\n"
BAD: dict[str, Tree] = {
    "no folder": None,
    "no digests": {"one": "1"},
    "no digest": {"SHA256SUMS": ""},
    "a package that is missing": {"SHA256SUMS": ONE},
    "another package": {"SHA256SUMS": ONE, "one": "other"},
    "a package without a digest": {"SHA256SUMS": ONE, "one": "1", "four": ""},
    "an image of a container": {"SHA256SUMS": f"{digest(LARGE)}  one\n", "one": LARGE},
}


def told(tree: Tree) -> list[str]:
    """Everything that is said of such a folder."""
    with patch.object(container_packages, "MOST_BYTES", LIMIT):
        return told_of(tree, lambda folder: container_packages.problems({"containerPackages": folder}))


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

"""What is refused in a stack's file, with its line. A secret is not quoted: no key of this project is one."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.config import ConfigError
from operations.project.loading import checked, load_project
from tests.rows import each
from tests.support import ROOT

CIPHER = "AAABAcipher"
BAD: dict[str, dict[str, Any]] = {
    "a secret": {"sshPublicKey": {"secure": CIPHER}},
    "a secret inside": {"tags": {"owner": {"secure": CIPHER}}},
    "a misspelt namespace": {"hyperpo:size": "small"},
}


def told(settings: dict[str, Any]) -> list[str]:
    """Everything that is said of a stack's file with them."""
    with TemporaryDirectory() as place:
        own = {key if ":" in key else f"hyperpod:{key}": one for key, one in settings.items()}
        config = {"aws:region": "us-west-2", **own}
        Path(place, "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
        Path(place, "Pulumi.dev.yaml").write_text(json.dumps({"config": config}))
        try:
            checked(load_project(Path(place), "dev"))
        except ConfigError as refused:
            return [str(problem) for problem in refused.problems]
    return []


@each(BAD)
def test_a_secret_in_the_stacks_file_is_refused_and_not_quoted(settings: dict[str, Any]) -> None:
    (problem,) = told(settings)
    assert CIPHER not in problem

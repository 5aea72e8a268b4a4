"""An elastic job of 16 pods on a real API server, as its drill shows it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal.kubernetes.binaries import missing
from rehearsal.kubernetes.container import available
from tests.support import ROOT

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()) or not available(), reason="`make kubernetes-tools` was not run here"),
]


def test_an_elastic_job_of_sixteen_pods_lends_loses_and_regains_nodes(tmp_path: Path) -> None:
    found = tmp_path / "drills.json"
    # A process of its own: without a network of its own it would replace itself.
    command = [sys.executable, str(ROOT / "hyperpod.py"), "rehearse", "drill", "eks-gpu", "--only", "elastic-job"]
    done = subprocess.run([*command, "--write", str(found)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(found.read_text())["drills"]
    assert (result["name"], result["passed"], result["lost"], result["left"]) == ("elastic-job", True, [], [])

"""`--serve`: the script works in a shell, a plain provider client finds the account, and Ctrl-C leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal.account import Account
from rehearsal.cli import main
from rehearsal.engines.real import place
from rehearsal.engines.serving import write_environment
from tests.support import ROOT, project


def test_the_script_to_source_sets_everything_and_goes_to_the_project() -> None:
    with Account("us-west-2") as account, place(project(), account) as at:
        script = write_environment(at, account.region)
        assert script.stat().st_mode & 0o077 == 0
        names = "$PULUMI_DEBUG_PROVIDERS|$PULUMI_BACKEND_URL|$AWS_ENDPOINT_URL|${AWS_PROFILE-unset}"
        told = f'source "$1"; pwd; echo "{names}"'
        found = subprocess.run(
            ["bash", "-c", told, "bash", str(script)],
            env={**os.environ, "AWS_PROFILE": "mine"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert found[0] == str(at.project)
        assert (Path(found[0]) / "Pulumi.dev.yaml").is_file()
        assert re.fullmatch(
            rf"(\w[\w-]*:\d+,)*kubernetes:\d+(,\w+:\d+)*\|{at.backend.as_uri()}\|http://127\.0\.0\.1:9\|unset", found[1]
        )
    assert not script.exists()


@pytest.mark.parametrize("more", [["--serve"], ["--engine", "pulumi"]])
def test_changes_are_the_embedded_engines_and_bad_company_is_2(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--then", "size=medium", *more]) == 2
    assert "--serve" in capsys.readouterr().err


@pytest.mark.slow
def test_it_serves_until_ctrl_c_and_leaves_nothing() -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "rehearsal", "--stack", "dev", "--serve"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as serving:
        assert serving.stdout is not None
        script = Path(next(line.split()[1] for line in serving.stdout if line.strip().startswith("source ")))
        assert script.is_file()
        serving.send_signal(signal.SIGINT)
        rest = serving.stdout.read()
    assert serving.returncode == 0
    assert "is gone" in rest
    assert not script.parent.exists()

"""Where a rehearsal's results go, and what is refused before it begins."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from operations import files
from operations.failures import Exit, Failure
from rehearsal.engines.real import RealRun
from tests.operations.aws import ended


@pytest.fixture
def real_run(monkeypatch: pytest.MonkeyPatch) -> RealRun:
    """What a rehearsal on the Pulumi engine finds, without running one."""
    run = RealRun(
        outputs={"name": "a", "password": "hunter2"},
        secret_outputs={"password"},
        warnings=["Grafana needs an identity center"],
        counts={"up": {"create": 2}},
        seconds={"up": 1.0},
    )
    monkeypatch.setattr("rehearsal.engines.real.rehearse_on_real_engine", lambda *_: run)
    return run


def test_a_dash_sends_the_json_to_standard_output_and_the_rest_to_standard_error(
    real_run: RealRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = ended(Exit.GOOD, "rehearse", "--engine", "pulumi", "--json")
    found = json.loads(out)
    assert (found["stack"], found["engine"], found["passed"]) == ("dev", "pulumi", True)
    assert found["outputs"] == {"name": "a", "password": "[secret]"}
    assert "nothing is left" in err
    assert not list(tmp_path.iterdir()), "no file called -"


def test_the_pulumi_engine_says_its_warnings_and_writes_the_result_of_a_failure_too(
    real_run: RealRun, tmp_path: Path
) -> None:
    real_run.failure = "network-vpc: no"
    out, err = ended(Exit.FAILED, "rehearse", "--engine", "pulumi", "--write", str(tmp_path / "r.json"))
    assert "Warning: Grafana needs an identity center" in out
    assert "network-vpc: no" in err
    found: dict[str, Any] = json.loads((tmp_path / "r.json").read_text())
    assert (found["passed"], found["failures"]) == (False, ["network-vpc: no"])


def test_a_missing_cli_is_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install the Pulumi CLI" in ended(Exit.CANNOT_KNOW, "rehearse", "--engine", "pulumi")[1]


@pytest.mark.parametrize("option", ["--report", "--write"])
def test_a_full_disk_and_a_read_only_folder_are_refused_at_the_beginning(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def read_only(self: Path, mode: str = "r", **more: Any) -> Any:
        if mode != "ab":
            return opened(self, mode, **more)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    full = os.statvfs_result((4096, 4096, 9, 2, 2, 9, 9, 9, 0, 255))
    for name, broken, said in (
        ("os.statvfs", lambda _: full, "has only 8,192 bytes left"),
        ("pathlib.Path.open", read_only, "Read-only file system"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(name, broken)
            out, err = ended(Exit.BAD_INPUT, "rehearse", option, str(tmp_path / "r"))
        assert f"{option} {tmp_path}/r: " in err
        assert said in err
        assert (out, list(tmp_path.iterdir())) == ("", [])


def test_a_file_that_cannot_be_written_whole_is_not_left_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: object, **__: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(Failure, match=r"r\.html: No space left on device"):
        files.write(tmp_path / "r.html", "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--report", "nowhere/r.html"], "--report nowhere/r.html: there is no folder nowhere"),
        (["--write", "nowhere/r.json"], "--write nowhere/r.json: there is no folder nowhere"),
        (["drill", "--write", "nowhere/r.json"], "there is no folder nowhere"),
        (["eks", "--write", "nowhere/r.json"], "there is no folder nowhere"),
        (["--engine", "pulumi", "--keep-up"], "--keep-up and --report are for the embedded engine"),
        (["--engine", "pulumi", "--report", "r.html"], "--keep-up and --report are for the embedded engine"),
        (["--serve", "--json"], "--serve ends with Ctrl-C and has no result"),
    ],
)
def test_what_a_run_could_not_do_at_its_end_is_refused_at_its_beginning(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in ended(Exit.BAD_INPUT, "rehearse", *words)[1]
    assert not list(tmp_path.iterdir())

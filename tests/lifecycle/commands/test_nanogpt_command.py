"""The command that trains a small GPT on the idle workers."""

import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import nanogpt

from tests.lifecycle.rig import group, record


def test_the_training_job_is_requeued_and_sets_rank_and_address_from_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, str] = {}

    def run(command: list[str], stdin: str) -> str:
        given[" ".join(command)] = stdin
        return "42;cluster\n"

    monkeypatch.setattr(nanogpt, "run", run)
    found = nanogpt._options().parse_args(["4", "--layers", "2", "--data", "a book.txt; rm -r /"])
    row = group("workers", "ml.p5.48xlarge")
    assert nanogpt._submit(found, row, 8, tmp_path, tmp_path / "a log") == "42"
    script = given[f"sbatch --parsable --chdir={tmp_path}"]
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=nanogpt\n")
    assert script.endswith("\nexit $code\n")
    assert f"\n#SBATCH --output='{tmp_path}/a log'\n" in script
    assert list(tmp_path.iterdir()) == [], "a script in a file could be changed on its way"
    for line in (
        "--nodes=4",
        "--ntasks-per-node=8",
        "--requeue",
        "--open-mode=append",
        "--partition=gpu",
        "--gres=gpu:8",
    ):
        assert f"#SBATCH {line}\n" in script
    assert 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)' in script
    assert "SLURM_RESTART_COUNT" in script
    trainer = f"--out {tmp_path} --steps 200 --save-every 50 --layers 2 --data 'a book.txt; rm -r /'"
    with_torch = "bash /opt/hyperpod/lib/training/with_torch.sh"
    srun = f'srun "${{auto_resume[@]}}" --mpi=none --kill-on-bad-exit=1 {with_torch}'
    assert f"\n{srun} /opt/hyperpod/lib/training/nanogpt.py {trainer}\n" in script
    assert "\nif ((code)); then bash /opt/hyperpod/lib/training/wait_for_requeue.sh; fi\n" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert "$(hostname)" not in script
    # On CPUs, and with a Python of the person's own.
    found = nanogpt._options().parse_args(["--partition", "own", "--python", "/my python"])
    cpus = replace(group("workers", "ml.m5.2xlarge"), partition="cpu")
    nanogpt._submit(found, cpus, 1, tmp_path, tmp_path / "log")
    script = given[f"sbatch --parsable --chdir={tmp_path}"]
    assert "--kill-on-bad-exit=1 '/my python' /opt/hyperpod/lib/training/nanogpt.py --out" in script
    assert re.findall(r"^#SBATCH --(?:partition|gres|nodes).*", script, re.M) == [
        "#SBATCH --nodes=2",
        "#SBATCH --partition=own",
    ]


def test_the_trainers_options_are_its_own_and_a_mistyped_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    found = nanogpt._options().parse_args(["--batch", "8", "--rate", "0.1"])
    assert (found.nodes, found.gpus, found.batch, found.rate) == (2, 0, 8, 0.1)
    for words, said in ((["--lairs", "2"], "--lairs"), (["--layers", "two"], "'two'"), (["2", "1", "8"], ": 8")):
        with pytest.raises(SystemExit):
            nanogpt._options().parse_args(words)
        assert said in capsys.readouterr().err
    trainer = (Path(nanogpt.__file__).parents[1] / "training/nanogpt.py").read_text()
    own = dict(re.findall(r'add_argument\("(--[a-z-]+)"(?:, type=(\w+))?', trainer))
    passed_on = {name: kind.__name__ for name, kind in nanogpt.TRAINER.items()}
    assert {**passed_on, "--steps": "int", "--save-every": "int", "--out": "str"} == {
        name: kind or "str" for name, kind in own.items()
    }


@pytest.mark.parametrize(
    ("state", "result", "code", "said"),
    [
        ("COMPLETED", {"first_loss": 4.1, "last_loss": 2.5}, 0, "PASS"),
        ("COMPLETED", {"first_loss": 2.5, "last_loss": 4.1}, 1, "the loss did not fall: 2.5000 to 4.1000"),
        ("COMPLETED", {"first_loss": 2.5, "last_loss": 2.5}, 1, "the loss did not fall: 2.5000 to 2.5000"),
        ("FAILED", None, 1, "the job is FAILED"),
        ("COMPLETED", None, 1, "the trainer wrote no result"),
    ],
)
def test_a_training_run_is_rated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, result: dict[str, Any] | None, code: int, said: str
) -> None:
    whole: dict[str, Any] = {}
    if result:
        whole = {**result, "steps": 200, "ms_per_step": 143.0, "backend": "gloo", "world_size": 4, "checkpoint": "c"}
        (tmp_path / "result.json").write_text(json.dumps(whole))
    assert nanogpt._report(Namespace(json=False), "1", state, tmp_path) == code
    lines = capsys.readouterr().out.splitlines()
    if result:
        assert lines[:3] == [
            "  iterations  loss at 0  last loss  ms/iter  backend  ranks",
            f"         200     {result['first_loss']:.4f}     {result['last_loss']:.4f}      143     gloo      4",
            "checkpoint c",
        ]
    reasons = [said] if code else []
    if state != "COMPLETED":
        reasons.append("the trainer wrote no result")
    failed = [
        "Look at:",
        f"  - {tmp_path}/train.log",
        "  - sinfo -R and /fsx/.hyperpod/nodes/*.json: nodes that are down or came up degraded",
        "FAIL",
    ]
    assert lines[3 if result else 0 :] == [*(f"  {reason}" for reason in reasons), *(failed if code else ["PASS"])]
    assert nanogpt._report(Namespace(json=True), "1", state, tmp_path) == code
    shown = capsys.readouterr().out
    document = json.loads(shown)
    assert shown == json.dumps(document, indent=2) + "\n"
    assert document.pop("result") == (whole if result else None)
    assert document == {"job": "1", "state": state, "passed": not code, "reasons": reasons}


def test_a_growing_log_is_shown_in_whole_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    assert nanogpt._show(log, 0) == 0
    log.write_text("iter 0: loss 4.1\niter 1")
    position = nanogpt._show(log, 0)
    log.write_text("iter 0: loss 4.1\niter 10: ü\n")
    position = nanogpt._show(log, position)
    with log.open("ab") as file:
        file.write(b"\xff\n")
    assert nanogpt._show(log, position) == log.stat().st_size
    assert capsys.readouterr().out == "iter 0: loss 4.1\niter 10: ü\n\ufffd\n"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A job that writes its log as it goes. What it is in next, first one first."""
    states = ["PENDING", "RUNNING", "RUNNING", "COMPLETED"]
    out = tmp_path / "run"
    row = replace(group("workers", "ml.p5.48xlarge"), partition="")
    monkeypatch.setattr(nanogpt, "record", lambda: record(row, fsx_mount=str(tmp_path)))
    monkeypatch.setattr(nanogpt, "worker_group", lambda record, partition: row)
    monkeypatch.setattr(nanogpt, "_closed", lambda folder: None)
    # A second look at the log comes after a moment, and the next at the job within half a second.
    monkeypatch.setattr(time, "sleep", lambda seconds: {0.2: None, 0.3: None}[seconds])
    monkeypatch.setattr(sys, "argv", ["run-nanogpt", "2", "--out", str(out)])

    def run(command: list[str], timeout: float = 120, **_: Any) -> str:
        if command[0] == "sbatch":
            return "42;cluster\n"
        assert (command, timeout) == (["scontrol", "show", "job", "42", "-o"], 30)
        state = states.pop(0)
        with (out / "train.log").open("a") as log:
            log.write(f"a line of {state}\n")
        return f"JobId=42 JobState={state} Reason=None\n"

    monkeypatch.setattr(nanogpt, "run", run)
    return states


def test_a_job_is_followed_to_its_end_and_an_earlier_runs_log_is_not_shown_again(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/train.log").write_text("of the run before\n")
    result = {"first_loss": 4.1, "last_loss": 2.5, "steps": 200, "ms_per_step": 143.0, "backend": "nccl"}
    (tmp_path / "run/result.json").write_text(json.dumps({**result, "world_size": 16, "checkpoint": "c"}))
    assert nanogpt.entry() == 0
    shown = re.sub(r"\[\d\d:\d\d:\d\d\]", "[time]", capsys.readouterr().out).splitlines()
    assert shown[:7] == [
        f"job 42: 2 nodes x 8, log {tmp_path}/run/train.log",
        "a line of PENDING",
        "[time] job 42 pending",
        "a line of RUNNING",
        "[time] job 42 running",
        "a line of RUNNING",
        "a line of COMPLETED",
    ]
    assert shown[-1] == "PASS"
    assert job == []


def test_a_job_that_slurm_no_longer_knows_is_given_up_after_a_while(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job[:] = ["UNKNOWN"] * 30
    assert nanogpt.entry() == 1
    assert "the job is UNKNOWN" in capsys.readouterr().out
    assert len(job) == 9
    # A controller that starts again answers in between.
    job[:] = [*["UNKNOWN"] * 20, "RUNNING", *["UNKNOWN"] * 20, "COMPLETED"]
    nanogpt.entry()
    assert job == []


def test_a_job_that_ended_in_any_way_is_followed_no_longer(job: list[str], tmp_path: Path) -> None:
    """squeue's manual, "JOB STATE CODES": what is over. Another state is none, as with a job that goes on."""
    over = ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"]
    for state in over:
        job[:] = ["CONFIGURING", "COMPLETING", "PREEMPTED", "REQUEUED", "SUSPENDED", state, "RUNNING"]
        nanogpt.entry()
        assert job == ["RUNNING"], state


def test_a_detached_job_is_only_named(
    job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["run-nanogpt", "--out", str(out), "--detach", "--json"])
    assert nanogpt.entry() == 0
    assert json.loads(capsys.readouterr().out) == {"job": "42", "log": f"{out}/train.log", "out": str(out)}
    assert len(job) == 4


def test_a_new_folder_is_made_for_every_run(
    job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run-nanogpt", "--detach"])
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")
    assert nanogpt.entry() == 0
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["nanogpt-20260101-000000"]
    assert nanogpt.entry() == 2
    new = tmp_path / "checkpoints/nanogpt-20260101-000000"
    assert capsys.readouterr().err == (f"run-nanogpt: {new} already exists; try again, or choose a folder with --out\n")

"""Jobs on Slurm from a laptop: what the controller is told through Session Manager, and what its answers become."""

import json
import re
import shlex
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operations.cluster import slurm_jobs
from operations.failures import Exit
from operations.jobs.batch import enroots_name, submission
from operations.jobs.choices import Choices
from operations.jobs.requests import JobError
from operations.jobs.specs import JOBS
from tests.operations.aws import StubbedAws, calls, command, ended, ended_json, run, run_json, with_nodes, with_session
from tests.rows import each
from tests.support import ROOT, config

# Slurm for one job: it waits, runs, and has ended when it is asked for the third time.
_SQUEUE = """
[[ "$*" == *--jobs* ]] || { cat "$HERE/queue" 2>/dev/null; exit 0; }
echo x >> "$HERE/asked"
case $(wc -l < "$HERE/asked") in
  1) echo "PENDING|ubuntu|Resources|nanogpt" ;;
  2) printf 'iter 10: loss 2.5, 3 ms\\niter 20: lo' >> "$HERE/checkpoints/nanogpt-17.log"
     echo "RUNNING|ubuntu|None|nanogpt" ;;
  *) printf 'ss 2.4, 3 ms\\n' >> "$HERE/checkpoints/nanogpt-17.log"
     echo "$(cat "$HERE/ends")|ubuntu|None|nanogpt" ;;
esac
"""
_RUNUSER = """
echo "$1 $2" >> "$HERE/users"
if [[ $1 == -l ]]; then shift 5; exec bash -c "$1"; fi
shift 3; exec "$@"
"""
_SBATCH = """
printf '%s\\n' "$@" > "$HERE/sbatch"; echo "${STEPS-}" > "$HERE/variable"; ls > "$HERE/files"
[[ ! -e $HERE/refuses ]] || { echo "sbatch: error: Batch job submission failed: Invalid partition" >&2; exit 1; }
echo "Submitted batch job 17"
"""


class Controller:
    """The controller's commands, and the folder that stands for /fsx."""

    def __init__(self, aws: StubbedAws, folder: Path, shared: Path) -> None:
        self._aws, self.bin, self.shared = aws, folder, shared
        (shared / "checkpoints").mkdir()
        self.ends("COMPLETED")
        for name, script in (("squeue", _SQUEUE), ("runuser", _RUNUSER), ("sbatch", _SBATCH)):
            command(folder, name, f"HERE={shared}\n{script}")
        command(folder, "sleep", "true")

    def ends(self, state: str) -> None:
        (self.shared / "ends").write_text(state)

    def sessions(self, number: int) -> None:
        with_nodes(self._aws)
        for _ in range(number):
            with_session(self._aws)

    def told(self, name: str) -> str:
        return (self.shared / name).read_text()

    @property
    def commands(self) -> list[str]:
        return [one["request"]["Parameters"]["command"][0] for one in calls(self.bin)]


@pytest.fixture
def controller(aws: StubbedAws, plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controller:
    monkeypatch.setattr(slurm_jobs, "_FOLDER", str(tmp_path / "fsx/checkpoints"))
    monkeypatch.setattr(slurm_jobs, "_LIBRARY", str(ROOT / "lifecycle/training"))
    (tmp_path / "fsx").mkdir()
    return Controller(aws, plugin, tmp_path / "fsx")


def test_a_job_goes_from_its_submission_to_its_figures(controller: Controller) -> None:
    controller.sessions(4)
    words = ("job", "run", "dev", "nanogpt", "-N", "2", "--env", "STEPS=a b", "-a", "--steps '5 5'")
    code, out, err = run(*words)
    assert code == Exit.GOOD, err
    said = ["iter 10: loss 2.5, 3 ms", "iter 20: loss 2.4, 3 ms"]
    assert out.splitlines()[:4] == [*said, "step: 20", "loss: 2.4"]
    asked = ["--job-name=nanogpt", "--nodes=2", "--ntasks-per-node=1", "nanogpt.sbatch", "--steps", "5 5"]
    assert controller.told("sbatch").splitlines() == asked
    assert (controller.told("variable"), controller.told("files")) == ("a b\n", "nanogpt.sbatch\n")
    assert controller.told("users").splitlines()[0] == "-l ubuntu"


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "CANCELLED"])
def test_a_job_that_slurm_says_failed_fails(state: str, controller: Controller) -> None:
    controller.ends(state)
    controller.sessions(4)
    code, _, err = run("job", "run", "dev", "nanogpt")
    assert (code, "nanogpt failed: the job failed: iter 20" in err) == (Exit.FAILED, True)


def test_what_slurm_refuses_leaves_nothing_behind(controller: Controller) -> None:
    (controller.shared / "refuses").touch()
    controller.sessions(1)
    _, err = ended(Exit.FAILED, "job", "run", "dev", "nanogpt")
    assert "nanogpt was not submitted: sbatch: error: Batch job submission failed: Invalid partition" in err
    assert list((controller.shared / "checkpoints/jobs-ubuntu").iterdir()) == []


def test_a_job_that_takes_too_long_goes_on_and_a_test_is_ended(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time is over after two looks, however fast this machine is.
    clock = SimpleNamespace(monotonic=count(step=0.06).__next__)
    monkeypatch.setattr("operations.cluster.slurm_jobs.time", clock)
    command(controller.bin, "scancel", f'echo "$@" > {controller.shared}/scancel')
    controller.ends("RUNNING")
    controller.sessions(3)
    _, err = ended(Exit.FAILED, "job", "run", "dev", "nanogpt", "--timeout", "0.1")
    assert "it continues; hyperpod job list dev; to end it: hyperpod job cancel dev 17" in " ".join(err.split())
    assert not (controller.shared / "scancel").exists()
    controller.sessions(4)
    run("job", "run", "dev", "device-check", "--timeout", "0.1")
    assert controller.told("scancel") == "17\n"


def test_a_script_of_ones_own_goes_there_whole_in_as_many_parts_as_it_takes(
    controller: Controller, tmp_path: Path
) -> None:
    # What does not pack: hexadecimal digits of squares.
    text = "# " + "".join(f"{n * n * 2654435761 % 2**32:08x}" for n in range(12_000)) + "\nprint('it''s')\n"
    (tmp_path / "Train_It.py").write_text(text)
    (tmp_path / "model.py").write_text("x = 'é'\n")
    command(
        controller.bin,
        "sbatch",
        f'cp -r . {controller.shared}/came; printf "%s\\n" "$@" > {controller.shared}/sbatch\n'
        "echo Submitted batch job 17",
    )
    controller.sessions(4)
    words = ("run", "dev", str(tmp_path / "Train_It.py"), "--with", str(tmp_path / "model.py"), "--no-wait", "-a", "-x")
    code, out, err = run(*words)
    assert (code, out) == (Exit.GOOD, "train-it is submitted: hyperpod job logs dev 17 -f\n"), err
    came = {path.name: path.read_text() for path in (controller.shared / "came").iterdir()}
    here = (ROOT / "jobs/slurm/torchrun.sbatch").read_text()
    assert came == {"Train_It.py": text, "model.py": "x = 'é'\n", "torchrun.sbatch": here}
    assert controller.told("sbatch").splitlines()[-3:] == ["torchrun.sbatch", "Train_It.py", "-x"]
    assert 1 < len(controller.commands) <= 4
    assert max(map(len, controller.commands)) < 65_535


def test_the_queue_is_listed_whatever_its_jobs_are_called(controller: Controller) -> None:
    script = """format="${*: -1}"; end="${format##*Name:}"; printf '17|ann|PENDING|Resources|a|b\\nc%s\\n' "$end" """
    command(controller.bin, "squeue", script)
    controller.sessions(1)
    code, found = run_json("job", "list", "dev", "--json")
    assert (code, found) == (
        Exit.GOOD,
        [{"job": "a|b?c", "id": "17", "user": "ann", "state": "pending: Resources"}],
    )


def test_the_log_is_the_newest_jobs_of_that_name_though_slurm_has_forgotten_it(controller: Controller) -> None:
    for number in (9, 17):
        (controller.shared / f"checkpoints/nanogpt-{number}.log").write_text(f"I am {number}\n")
    refuse = "[[ $* == *--jobs* ]] || exit 0; echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"
    command(controller.bin, "squeue", refuse)
    command(controller.bin, "sacct", "exit 1")
    for asked, said in (("nanogpt", "I am 17\n"), ("9", "I am 9\n")):
        controller.sessions(1)
        code, out, err = run("job", "logs", "dev", asked)
        assert (code, out, "forgotten" in err) == (Exit.GOOD, said, True)
    command(controller.bin, "sacct", 'echo "CANCELLED by 0|ann|None|nanogpt"')
    controller.sessions(1)
    assert "job 17 of ann: cancelled" in run("job", "logs", "dev", "nanogpt")[2]
    controller.sessions(1)
    code, _, err = run("job", "logs", "dev", "nosuch")
    assert (code, "there is no job nosuch\nNext: hyperpod job list dev" in err) == (Exit.BAD_INPUT, True)


def test_a_log_is_read_as_its_owner_from_where_the_last_part_ended(controller: Controller) -> None:
    controller.sessions(5)
    code, out, _ = run("job", "logs", "dev", "17", "-f")
    assert (code, out) == (Exit.GOOD, "iter 10: loss 2.5, 3 ms\niter 20: loss 2.4, 3 ms\n")
    owner = (controller.shared / "checkpoints/nanogpt-17.log").owner()
    assert set(controller.told("users").splitlines()) == {f"-u {owner}"}


def test_a_job_is_cancelled_by_its_number_once_that_is_confirmed(controller: Controller) -> None:
    command(controller.bin, "scancel", f'echo "$@" > {controller.shared}/scancel')
    controller.sessions(1)
    code, _, err = run("job", "cancel", "dev", "17")
    assert (code, "job 17 of ubuntu (pending: Resources)?" in err) == (Exit.BAD_INPUT, True)
    controller.sessions(2)
    assert run("job", "cancel", "dev", "17", "--yes")[0] == Exit.GOOD
    assert controller.told("scancel") == "17\n"
    controller.sessions(1)
    assert run("job", "cancel", "dev", "17", "--yes")[0] == Exit.BAD_INPUT


OPTIONS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "all devices": ("slurm-gpu", "fsdp-llama", {}, "--nodes=2 --ntasks-per-node=8 --gpus-per-node=8 fsdp_llama.sbatch"),
    "some of them": ("slurm-gpu", "nanogpt", {"devices": 3}, "--ntasks-per-node=3 nanogpt.sbatch"),
    "whole nodes": ("slurm-trainium", "neuron", {"nodes": 1}, "--job-name=neuron --nodes=1 neuron.sbatch"),
    "a test": ("slurm-gpu", "nccl-tests", {}, "--time=60 test.sbatch /opt/hyperpod/bin/run-nccl-test 2 8"),
    "its deadline": ("slurm-gpu", "nccl-tests", {"deadline": 61.0}, "--time=2 test.sbatch"),
    "cores": (
        "slurm-trainium",
        "nccom-test",
        {},
        "--nodes=2 --time=60 test.sbatch /opt/hyperpod/bin/run-nccom-test 2 32",
    ),
    "a group": ("slurm-gpu", "nanogpt", {"group": "workers"}, "--partition=workers nanogpt.sbatch"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_slurm_is_asked_for_what_kubernetes_would_be(case: str) -> None:
    stack, name, options, wanted = OPTIONS[case]
    chosen = {key: value for key, value in options.items() if key != "deadline"}
    found = submission(name, config(stack), Choices(**chosen), deadline=options.get("deadline"))
    assert wanted in found.command


def test_a_container_image_is_named_as_enroot_takes_it() -> None:
    settings = config("slurm-gpu", slurm={"containers": True})
    image = submission("nanogpt", settings, Choices(image="nvcr.io/nvidia/pytorch:25.10-py3")).environment
    assert image == {"CONTAINER_IMAGE": "nvcr.io#nvidia/pytorch:25.10-py3"}
    assert submission("nemo", settings).environment["CONTAINER_IMAGE"].startswith("nvcr.io#nvidia/nemo:")
    kept = ("/fsx/images/a.sqsh", "nvcr.io#nvidia/a:1", "ubuntu:24.04", "library/ubuntu", "docker://a.b/c")
    assert [enroots_name(one) for one in kept] == [*kept]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "namespace": ({"namespace": "red"}, "--user names whose job it is"),
    "EFA": ({"efa": 1}, "sees all EFA interfaces"),
    "placement": ({"placement": "near"}, "sbatch --switches=1"),
    "user": ({"user": "ann;id"}, "not a user name"),
    "variable": ({"env": ["A B=1"]}, "NAME=VALUE"),
    "image": ({"image": "a:1"}, "hyperpod:slurm.containers"),
    "an image for a test": ({"name": "nccl-tests", "image": "a:1"}, "runs on the nodes themselves"),
    "quotes": ({"arguments": "'"}, "No closing quotation"),
    "chips": ({"stack": "slurm-trainium", "name": "neuron", "devices": 2}, "gets whole nodes"),
    "more nodes than there are": ({"nodes": 3}, "ask for 1 to 2"),
    "a verb": ({"name": "find-slow-node"}, "with Slurm this is a verb: hyperpod node find-slow STACK"),
    "an unknown job": ({"name": "nosuch"}, "this cluster can run device-check"),
    "another accelerator": ({"name": "neuron"}, "neuron is for trainium"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_slurm_cannot_do_is_refused_before_anything_is_sent(case: str) -> None:
    options, why = REFUSED[case]
    given = {"name": "nanogpt", "stack": "slurm-gpu", **options}
    with pytest.raises(JobError, match=re.escape(why)):
        submission(given.pop("name"), config(given.pop("stack")), Choices(**given))


def test_every_job_runs_on_slurm_with_the_files_that_its_batch_file_takes() -> None:
    for name, job in JOBS.items():
        if job.batch is None:
            assert name == "find-slow-node"
            continue
        first = (ROOT / "jobs/slurm" / job.batch.files[0]).read_text()
        needed = set(re.findall(r"\$HERE/(\w+\.py)", first))
        assert needed <= set(job.batch.files), name


def test_a_dry_run_shows_what_would_be_submitted_and_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import model\n")
    found = ended_json(Exit.GOOD, "run", "slurm-gpu", str(tmp_path / "train.py"), "-N", "1", "--dry-run", "--json")
    assert shlex.split(found["command"])[-2:] == ["torchrun.sbatch", "train.py"]
    assert found["files"]["train.py"] == "import model\n"
    out, _ = ended(Exit.GOOD, "run", "eks-gpu", str(tmp_path / "train.py"), "-N", "2", "--dry-run", "--env", "A=b")
    for part in (
        "train.py: |",
        "--nnodes=2 --nproc-per-node=8",
        "/opt/training/train.py",
        "name: A",
        "mountPath: /opt",
    ):
        assert part in out
    assert "--out" not in out


@each(
    (
        (["nosuch.py"], "No such file"),
        (["big.py"], "262145 bytes of files; 262144 at most"),
        (["binary.py"], "is no text"),
        (["train.py", "--with", "train.py"], "a name of its own"),
        (["train.py", "--with", "odd name.txt"], "a name of its own"),
        (["nanogpt.py"], '"nanogpt" is the name of a job of this project'),
        (["train.py", "--name", "No_Name"], '"No_Name" is not a job'),
        (["train.py", "--nodes", "9"], "ask for 1 to 2"),
    )
)
def test_a_script_that_cannot_be_run_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    contents = {
        "big.py": b"#" * (2**18 + 1),
        "binary.py": b"\xff\x00",
        "train.py": b"",
        "odd name.txt": b"",
        "nanogpt.py": b"",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    asked = [str(tmp_path / word) if "." in word else word for word in words]
    for stack in ("dev", "eks-gpu"):
        code, _, err = run("run", stack, *asked)
        assert (code, why in err) == (Exit.BAD_INPUT, True), err


def test_what_is_kubernetes_own_is_refused_with_slurm(tmp_path: Path) -> None:
    (tmp_path / "k").touch()
    code, _, err = run("job", "logs", "dev", "1", "-n", "red", "--kubeconfig", str(tmp_path / "k"))
    assert (code, "--kubeconfig and --namespace: dev runs Slurm" in err) == (Exit.BAD_INPUT, True)


def test_the_result_for_machines_has_no_namespace(controller: Controller) -> None:
    controller.sessions(4)
    code, out, _ = run("job", "run", "dev", "nanogpt", "--json")
    assert (code, json.loads(out)["namespace"], json.loads(out)["figures"]) == (
        Exit.GOOD,
        None,
        {"step": 20.0, "loss": 2.4},
    )

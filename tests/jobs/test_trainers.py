"""The trainers, run on CPUs: a job that starts again goes on where its newest checkpoint ends."""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs/slurm"
# Debian's python3-torch is for its own Python.
PYTHONS = (sys.executable, "/usr/bin/python3")
RUN = """
import runpy, sys
sys.path[:0] = [{stubs!r}, {folder!r}]
import stubs
for name in {names}:
    getattr(stubs, name)()
sys.argv = [{script!r}, *sys.argv[1:]]
runpy.run_path({script!r}, run_name="__main__")
"""


@functools.cache
def python_with_torch() -> str:
    """A Python that has PyTorch; the test is skipped where there is none."""
    for python in PYTHONS:
        if (
            Path(python).exists()
            and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0
        ):
            return python
    pytest.skip("no Python with PyTorch here (Debian's is python3-torch)")


# Each line asks for a run in a fork, which has PyTorch: importing it takes more than most runs. The answer: its status.
FORKS = """
import json, os, sys, torch
for line in sys.stdin:
    code, arguments, environment, files = json.loads(line)
    if not (child := os.fork()):
        for file, number in zip(files, (1, 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[1:] = arguments
        exec(code)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def forks() -> tuple[IO[str], IO[str]]:
    """Where runs are asked for, and where their statuses come from."""
    command = [python_with_torch(), "-c", FORKS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    return process.stdin, process.stdout


def train(script: str, names: tuple[str, ...], *arguments: str, **environment: str) -> str:
    """The trainer's output."""
    path = JOBS / script
    code = RUN.format(stubs=str(Path(__file__).parent), folder=str(path.parent), names=names, script=str(path))
    return said_by(code, *arguments, **environment)


def said_by(code: str, *arguments: str, **environment: str) -> str:
    """What code prints."""
    given = {"PATH": os.environ["PATH"], "TRAINING": str(ROOT / "lifecycle/training"), "OMP_NUM_THREADS": "1"}
    asked, statuses = forks()
    with TemporaryDirectory() as folder:
        files = [f"{folder}/out", f"{folder}/err"]
        print(json.dumps((code, arguments, {**given, **environment}, files)), file=asked, flush=True)
        status = statuses.readline()
        said, errors = (Path(file).read_text() for file in files)
    assert status == "0\n", errors
    return said


pytestmark = pytest.mark.slow


def test_neuron_train_resumes_from_the_newest_readable_checkpoint(tmp_path: Path) -> None:
    small = ("--out", str(tmp_path), "--save-every", "2", "--log-every", "1", "--layers", "1", "--embed", "32")
    whole = train("neuron_train.py", ("xla",), *small, "--steps", "6")
    assert "1 NeuronCores, started" in whole
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["checkpoint-00000004.pt", "checkpoint-00000006.pt"]
    (tmp_path / "checkpoint-00000006.pt").write_bytes(b"half")
    again = train("neuron_train.py", ("xla",), *small, "--steps", "6")
    assert "checkpoint-00000006.pt cannot be read" in again
    assert "resumed after iter 4" in again
    # The same batches and the same weights: the same losses.
    losses = re.findall(r"^iter [56]: loss [\d.]+$", whole, re.M)
    assert len(losses) == 2
    assert re.findall(r"^iter \d+: loss [\d.]+$", again, re.M) == losses


FSDP = """
import sys
from pathlib import Path
sys.path[:0] = [{stubs!r}, {jobs!r}]
import stubs
stubs.fsdp()
import torch
import fsdp_llama as trainer

out = Path(sys.argv[1])

def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.AdamW(model.parameters())

model, optimizer = make(1)
print("fresh", trainer._resume(out, model, optimizer))
for step in (10, 20, 30):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    trainer._save(out, model, optimizer, step)
(out / ".step-00000040.new").mkdir()
fresh, state = make(2)
print("resumed", trainer._resume(out, fresh, state), torch.equal(fresh.weight, model.weight))
print("moments", torch.equal(state.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"]))
"""


# The checkpoint in memory is newer than the one on disk; then the nodes that had it are gone; then nothing is on disk.
REMEMBERED = """
memory = trainer.Memory(out)
print("nothing", memory.newest())
memory.save(trainer._state(model, optimizer, 35), 35)
fresh, state = make(3)
print("from memory", trainer._resume(out, fresh, state, memory), torch.equal(fresh.weight, model.weight))
(there,) = sys.modules["amzn_sagemaker_checkpointing.checkpointing.filesystem.filesystem"].remembered.values()
there[35] = None
print("from disk", trainer._resume(out, fresh, state, memory))
there[25] = there.pop(35)
print("disk is newer", trainer._resume(out, fresh, state, memory))
try:
    trainer._resume(out / "elsewhere", fresh, state, memory)
except SystemExit as refused:
    print(refused)
"""


def test_fsdp_llama_resumes_from_the_nodes_memory_where_that_is_newer_and_whole(tmp_path: Path) -> None:
    code = FSDP.format(stubs=str(Path(__file__).parent), jobs=str(JOBS)) + REMEMBERED
    said = said_by(code, str(tmp_path)).splitlines()
    assert {"nothing -1", "from memory 36 True", "from disk 31", "disk is newer 31"} <= set(said)
    assert f"there is none in {tmp_path}/elsewhere either: start again with another --out" in said


def test_fsdp_llama_keeps_two_complete_checkpoints_and_resumes_from_the_newest(tmp_path: Path) -> None:
    code = FSDP.format(stubs=str(Path(__file__).parent), jobs=str(JOBS))
    said = said_by(code, str(tmp_path)).splitlines()
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-00000020", "step-00000030"]
    assert {"fresh 0", "resumed 31 True", "moments True"} <= set(said)


LLAMA = """
import os, sys
sys.path.insert(0, os.environ["TRAINING"])
import torch
import llama
from training_report import Asked

join = torch.distributed.init_process_group
join("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
options = llama.parser("x").parse_args(["--out", "x", *sys.argv[1:]])
data, saved, remembered, asked = llama.tokens(options), [], [], Asked()

def one(sequences, rate):
    print("got", sequences[0, :2].tolist(), round(rate, 4))
    if len(saved) == 2:
        os.kill(os.getpid(), 10)
    return sequences.float().mean()

llama.train(options, 0, data, asked, one, saved.append, remembered.append)
print("vocabulary", options.vocabulary, "saved", saved, "remembered", remembered)
first, again, other = (llama.batch(options, data, step, rank) for step, rank in ((5, 0), (5, 0), (5, 1)))
print("batches", tuple(first.shape), bool((first == again).all()), bool((first == other).all()))
options.rate, options.warmup, options.steps = 1.0, 10, 110
print("rates", *(round(llama.rate(options, step), 4) for step in (0, 9, 10, 60, 110)))
"""


def test_llama_trains_on_a_file_of_tokens_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"".join(number.to_bytes(4, "little") for number in range(70_000, 70_400)))
    several = (
        "--data-type",
        "uint32",
        "--vocabulary",
        "71000",
        "--context",
        "8",
        "--batch",
        "3",
        "--steps",
        "40",
        "--save-every",
        "4",
        "--log-every",
        "2",
        "--memory-every",
        "3",
    )
    said = said_by(LLAMA, "--data", str(tmp_path / "tokens.bin"), *several).splitlines()
    firsts = [tuple(map(int, pair)) for pair in re.findall(r"got \[(\d+), (\d+)\]", "\n".join(said))]
    # Steps 0 to 8, then 9, in which the signal comes, and 10, at which the ranks agree.
    assert len(firsts) == 11
    assert all(one >= 70_000 and two == one + 1 for one, two in firsts)
    assert len({one for one, _ in firsts}) > 5
    assert [int(step) for step in re.findall(r"^step (\d+):", "\n".join(said), re.M)] == [0, 2, 4, 6, 8, 10]
    assert "vocabulary 71000 saved [4, 8, 10] remembered [3, 6, 9]" in said
    assert "batches (3, 8) True False" in said
    # Ten steps up, then a cosine over a hundred down to a tenth.
    assert "rates 0.1 1.0 1.0 0.55 0.1" in said


SPREAD = """
import os, sys, time
sys.path.insert(0, os.environ["TRAINING"])
import torch
import llama, training_report

rank = int(os.environ["RANK"])
# A rank at a quarter of its clock: the same work takes it four times as long, in a step as alone.
training_report.PRODUCTS *= 4 if rank == 1 else 1
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)

def one(sequences, rate):
    time.sleep(0.2 if rank == 1 else 0.0)
    loss = sequences.float().mean()
    torch.distributed.all_reduce(loss.clone())  # As in every layer of a model that is spread.
    return loss

options = llama.parser("x").parse_args(["--out", "x", "--steps", "3", "--log-every", "1", "--context", "8"])
llama.train(options, 0, None, False, one, lambda step: None)
"""


def test_a_slow_rank_of_a_model_that_is_spread_is_told_by_its_own_work(tmp_path: Path) -> None:
    given = {"TRAINING": str(ROOT / "lifecycle/training"), "HYPERPOD_TRAINING_REPORTS": str(tmp_path)}
    command = [python_with_torch(), "-c", SPREAD, str(tmp_path / "store")]
    world = [{**given, "RANK": str(rank), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]} for rank in range(3)]
    ranks = [subprocess.Popen(command, env=one, stdout=subprocess.DEVNULL) for one in world]
    assert [rank.wait(timeout=100) for rank in ranks] == [0, 0, 0]
    told = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(3)]
    steps, own = ([one[field] for one in told] for field in ("step_seconds", "compute_seconds"))
    # All have the slow one's steps, which tell nothing.
    assert min(steps) > 0.9 * steps[1]
    # As the alert TrainingSlowRank compares them.
    assert [rank for rank, seconds in enumerate(own) if seconds > 1.2 * statistics.median(own)] == [1]


@pytest.mark.parametrize(
    ("data", "why"),
    [("none", "no such file"), ("few", "4 tokens")],
)
def test_llama_says_what_is_wrong_with_its_data_before_it_loads_a_model(tmp_path: Path, data: str, why: str) -> None:
    (tmp_path / "few").write_bytes(b"12345678")
    code = LLAMA.replace("join(", "0 and join(")
    with pytest.raises(AssertionError, match=why):
        said_by(code, "--data", str(tmp_path / data), "--context", "5")


def test_nemo_runs_its_recipe_in_the_processes_that_slurm_started_and_resumes(tmp_path: Path) -> None:
    (reports := tmp_path / "reports").mkdir()
    slurm = {"SLURM_NTASKS": "16", "SLURM_NTASKS_PER_NODE": "8", "HYPERPOD_TRAINING_REPORTS": str(reports)}
    options = ("--out", str(tmp_path), "--steps", "70", "--save-minutes", "5")
    said = json.loads(train("nemo_pretrain.py", ("nemo",), *options, **slurm))
    assert (said["num_nodes"], said["num_gpus_per_node"], said["dir"]) == (2, 8, str(tmp_path))
    # The learning rate only climbs, up to half of itself, in a run that ends before the warm-up does.
    assert (said["trainer"], said["warmup"]) == ({"max_steps": 70}, 7)
    assert said["resume"] == {"resume_if_exists": True, "resume_ignore_no_checkpoint": True}
    assert said["checkpoints"] == {"train_time_interval": "0:05:00", "save_top_k": "2", "save_last": "True"}
    assert said["direct"] is True
    told = json.loads((reports / "rank-3.json").read_text())
    assert (told["step"], told["loss"]) == (2, 2.5)
    assert told["tokens_per_second"] * told["step_seconds"] == pytest.approx(512 * 8192)
    assert {"checkpoint_seconds", "checkpoint_time_seconds", "updated_time_seconds"} <= told.keys()
    assert told["compute_seconds"] > 0


RANKS = {"RANK": "2", "WORLD_SIZE": "4"}


def test_torchtitan_trains_in_the_jobs_folder_and_tells_its_figures(tmp_path: Path) -> None:
    given = {**RANKS, "HYPERPOD_TRAINING_REPORTS": str(tmp_path)}
    options = ("--out", "/out", "--training.steps", "70")
    said = train("torchtitan_train.py", ("torchtitan",), *options, **given).splitlines()
    assert said[0].startswith("--checkpoint.enable --checkpoint.keep_latest_k 2 ")
    assert "--model.flavor 8B" in said[0]
    assert said[0].endswith("--job.dump_folder /out --training.steps 70")
    told = json.loads((tmp_path / "rank-2.json").read_text())
    assert (told["step"], told["loss"]) == (2, 2.5)
    # 1000 a step and rank, and two ranks have the same.
    assert told["tokens_per_second"] * told["step_seconds"] == pytest.approx(2000)
    assert told["mfu"] == pytest.approx(1e9 * told["tokens_per_second"] / (4 * 2e12))
    assert {"checkpoint_seconds", "compute_seconds"} <= told.keys()
    # The first rank of the last stage, which knows the loss.
    assert re.fullmatch(r"step 2: loss 2\.5000, \d+ ms, [\d,]+ tokens/s, MFU [\d.]+%", said[1])
    first = train("torchtitan_train.py", ("torchtitan",), *options, **{**given, "RANK": "1"}).splitlines()
    assert len(first) == 1
    assert "loss" not in json.loads((tmp_path / "rank-1.json").read_text())


def test_a_file_of_torchtitans_options_says_which_model(tmp_path: Path) -> None:
    said = train("torchtitan_train.py", ("torchtitan",), "--out", "/out", "--job.config_file=/fsx/70b.toml", **RANKS)
    assert "--model" not in said
    assert "--checkpoint.enable" in said


def test_lora_resumes_from_the_newest_complete_checkpoint_and_tells_its_figures(tmp_path: Path) -> None:
    out, given = tmp_path / "out", {**RANKS, "RANK": "0", "HYPERPOD_TRAINING_REPORTS": str(tmp_path)}
    options = ("--out", str(out), "--max_steps", "70")
    said = train("lora_train.py", ("trl",), *options, **given).splitlines()
    assert said[0].startswith("--use_peft ")
    assert said[0].endswith(f"--output_dir {out} --max_steps 70")
    assert said[1:3] == ["started", "from None"]
    told = json.loads((tmp_path / "rank-0.json").read_text())
    assert (told["step"], told["loss"]) == (2, 2.5)
    assert told["tokens_per_second"] * told["step_seconds"] == pytest.approx(1000)
    # Four for a frozen parameter, six for a trained one.
    assert told["mfu"] == pytest.approx((4 * 90 + 6 * 10) * told["tokens_per_second"] / (2 * 362e12))
    assert {"checkpoint_seconds", "compute_seconds"} <= told.keys()
    assert re.match(r"step 2: loss 2\.5000, ", said[3])
    for name in ("checkpoint-90", "checkpoint-100"):
        (out / name).mkdir(parents=True)
        (out / name / "trainer_state.json").touch()
    (out / "checkpoint-110").mkdir()  # It was not complete when its node was lost.
    assert f"from {out}/checkpoint-100" in train("lora_train.py", ("trl",), *options, **given)


BAIT = """
import pickle, sys, torch

class Bait:
    def __reduce__(self):
        return open, (sys.argv[2], "w")

torch.save({"model": Bait(), "step": 0}, sys.argv[1])
"""


NANOGPT = "../../lifecycle/training/nanogpt.py"


def test_nanogpt_resumes_with_the_same_losses_as_an_uninterrupted_run(tmp_path: Path) -> None:
    small = ("--out", str(tmp_path), "--save-every", "2", "--log-every", "1", "--layers", "1", "--embed", "32")
    whole = train(NANOGPT, (), *small, "--steps", "6")
    (tmp_path / "checkpoint-00000006.pt").unlink()
    again = train(NANOGPT, (), *small, "--steps", "6")
    assert "resumed after iter 4" in again
    losses = re.findall(r"^iter (?:5|6): loss ([\d.]+)", whole, re.M)
    assert re.findall(r"^iter \d+: loss ([\d.]+)", again, re.M) == losses
    result = json.loads((tmp_path / "result.json").read_text())
    assert [step for step, _ in result["history"]] == list(range(7))
    assert result["checkpoint"] == str(tmp_path / "checkpoint-00000006.pt")


@pytest.mark.parametrize(("trainer", "stubs"), [("neuron_train.py", ("xla",)), (NANOGPT, ())])
def test_a_checkpoint_that_somebody_planted_runs_no_code(tmp_path: Path, trainer: str, stubs: tuple[str, ...]) -> None:
    out, ran = tmp_path / "out", tmp_path / "ran"
    out.mkdir()
    said_by(BAIT, str(out / "checkpoint-00000009.pt"), str(ran))
    small = ("--out", str(out), "--save-every", "1", "--layers", "1", "--embed", "32", "--steps", "1")
    said = train(trainer, stubs, *small)
    assert "checkpoint-00000009.pt cannot be read" in said
    assert not ran.exists()


# What the trainers compute

FORMULAS = Path(__file__).with_name("formulas.py")


def test_a_step_of_nanogpt_goes_down_the_gradient_of_its_own_part_of_the_text() -> None:
    said_by(FORMULAS.read_text(), "step")


def test_a_sweep_of_three_ranks_exchanges_values_checks_them_and_times_the_slowest(tmp_path: Path) -> None:
    given = {"TRAINING": str(ROOT / "lifecycle/training"), "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    command = [python_with_torch(), str(FORMULAS), "sweep", str(tmp_path / "store")]
    ranks = [
        subprocess.Popen(command, env={**given, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], said

"""The sbatch files: options that Slurm takes, and what they start, with commands that only say how they were called."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.slurm import kept_slurm, needs_slurm

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs/slurm"
FILES = sorted(JOBS.glob("*.sbatch"))
NAMES = [path.name for path in FILES]
# Those that train on all of a job's ranks; torchrun.sbatch leaves checkpoints to the script.
TRAINERS = [name for name in NAMES if name != "test.sbatch"]
# Enough for sbatch to read a job's options; nobody answers at that port.
SLURM_CONF = """ClusterName=x
SlurmctldHost=localhost
SlurmctldPort=1
SelectType=select/cons_tres
GresTypes=gpu,neuron
NodeName=a CPUs=1
PartitionName=p Nodes=ALL Default=YES
"""
# Each call's arguments end with a zero byte each, and the call with another.
SRUN = """#!/bin/sh
[ "$*" = --help ] && echo --container-image && exit
printf '%s\\0' "$@" '' >> "$CALLS"
echo "${FI_EFA_USE_HUGE_PAGE-unset}" > "$CALLS.huge"
exit "${SRUN_CODE:-0}"
"""
GIVEN = {
    "nemo.sbatch": {"NEMO_PYTHON": "/fsx/nemo/bin/python"},
    "trainer.sbatch": {"PYTHON": "/fsx/envs/lora/bin/python"},
}


def submit(tmp_path: Path, name: str, *arguments: str, hyperpod: bool = False, **environment: str) -> list[str]:
    """Run a job's script as Slurm does, from a copy; what it gave srun."""
    commands, home = tmp_path / "bin", tmp_path / "sagemaker_cluster"
    commands.mkdir(exist_ok=True)
    for command, text in (
        ("srun", SRUN),
        ("scontrol", "#!/bin/sh\necho first\necho second\n"),
        ("sleep", "#!/bin/sh\n"),
    ):
        (commands / command).write_text(text)
        (commands / command).chmod(0o755)
    if hyperpod:
        home.mkdir()
    here = tmp_path / "here"
    shutil.copytree(JOBS, here)
    for path in here.glob("*.sbatch"):
        text = path.read_text().replace("/opt/sagemaker_cluster", str(home)).replace("/fsx/", f"{tmp_path}/")
        path.write_text(text.replace("/opt/hyperpod/lib", str(ROOT / "lifecycle")))
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "it", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_SUBMIT_DIR": str(here)}
    values = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "HYPERPOD_WAIT_SECONDS": "0",
        **job,
    }
    script = shutil.copy(here / name, tmp_path / "slurm_script")
    done = subprocess.run(
        ["bash", str(script), *arguments],
        env={**values, **GIVEN.get(name, {}), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    (tmp_path / "told").write_text(done.stderr)
    assert done.returncode == int(environment.get("SRUN_CODE", "0")), done.stderr
    (call, rest) = (tmp_path / "calls").read_text().split("\0\0")
    assert not rest, "srun was called more than once"
    return call.split("\0")


@pytest.mark.slow
@needs_slurm
@pytest.mark.parametrize("name", NAMES)
def test_slurm_takes_every_option(tmp_path: Path, name: str) -> None:
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    # Past the options sbatch asks the controller, again and again.
    with kept_slurm(SLURM_CONF=str(tmp_path / "slurm.conf")) as slurm:
        done = subprocess.run(
            [*slurm.inside, "timeout", "1", "sbatch", "--test-only", str(JOBS / name)],
            env=slurm.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (124, "")


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("hyperpod", [True, False])
def test_on_hyperpod_srun_is_resumed_by_hyperpod(tmp_path: Path, name: str, hyperpod: bool) -> None:
    assert ("--auto-resume=1" in submit(tmp_path, name, hyperpod=hyperpod)) is hyperpod


@pytest.mark.parametrize("name", GIVEN)
def test_a_data_loader_that_forks_needs_no_second_set_of_huge_pages(tmp_path: Path, name: str) -> None:
    submit(tmp_path, name)
    assert (tmp_path / "calls.huge").read_text() == "0\n"
    for left in (tmp_path / "calls", tmp_path / "here"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    submit(tmp_path, name, FI_EFA_USE_HUGE_PAGE="1")
    assert (tmp_path / "calls.huge").read_text() == "1\n"


@pytest.mark.parametrize("name", TRAINERS)
def test_every_job_runs_in_a_container_that_has_its_files_and_otherwise_as_before(tmp_path: Path, name: str) -> None:
    given = {"NEMO_PYTHON": "python"}
    bare = submit(tmp_path, name, "--steps", "7", hyperpod=False, **given)
    for left in ("here", "calls"):
        shutil.rmtree(tmp_path / left) if (tmp_path / left).is_dir() else (tmp_path / left).unlink()
    image, mounts = "nvcr.io#nvidia/pytorch:25.10-py3", "/data:/data:ro"
    given |= {"CONTAINER_IMAGE": image, "CONTAINER_MOUNTS": mounts}
    call = submit(tmp_path, name, "--steps", "7", hyperpod=False, **given)
    here = tmp_path / "here"
    assert [word for word in call if word.startswith("--container")] == [
        f"--container-image={image}",
        f"--container-workdir={here}",
        f"--container-mounts=/fsx:/fsx,{here}:{here},{mounts}",
    ]
    assert [word for word in call if not word.startswith("--container")] == bare
    # Pyxis fetches it on each node, so no file is there before the job starts.
    assert f"{image} is not checked for this node's driver and EFA" in (tmp_path / "told").read_text()


def test_a_container_job_says_what_is_missing_before_it_starts_anything(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"none.sqsh cannot be read; hyperpod-import-image IMAGE /fsx/none.sqsh"):
        submit(tmp_path, "nanogpt.sbatch", CONTAINER_IMAGE="/fsx/none.sqsh")
    shutil.rmtree(tmp_path / "here")
    with (
        patch(f"{__name__}.SRUN", "#!/bin/sh\n"),
        pytest.raises(
            AssertionError, match=r"no Pyxis, which CONTAINER_IMAGE needs: is hyperpod:slurm.containers true"
        ),
    ):
        submit(tmp_path, "nanogpt.sbatch", CONTAINER_IMAGE="image")


@pytest.mark.parametrize("name", [name for name in TRAINERS if name != "torchrun.sbatch"])
def test_a_folder_of_checkpoints_that_somebody_else_made_first_is_not_used(tmp_path: Path, name: str) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "checkpoints/it-7").symlink_to(tmp_path / "theirs")
    with pytest.raises(AssertionError, match=r"is a link or somebody else's: OUT=FOLDER names one of your own"):
        submit(tmp_path, name)
    assert not (tmp_path / "calls").exists()
    (tmp_path / "checkpoints/it-7").unlink()
    for number in range(2):  # the second time as after a lost node
        shutil.rmtree(tmp_path / "here")
        assert str(tmp_path / "checkpoints/it-7") in " ".join(submit(tmp_path, name)) or name.startswith("neuron"), (
            number
        )
        (tmp_path / "calls").unlink()


@pytest.mark.parametrize("name", TRAINERS)
def test_hyperpod_requeue_can_tell_from_the_script_alone_that_a_job_is_resumed(name: str) -> None:
    assert "--auto-resume" in (JOBS / name).read_text()


@pytest.mark.parametrize("name", TRAINERS)
def test_a_jobs_options_reach_its_trainer_and_its_failure_is_the_jobs(tmp_path: Path, name: str) -> None:
    call = submit(tmp_path, name, "--steps", "7", SRUN_CODE="3")
    assert call[-2:] == ["--steps", "7"]
    assert "--kill-on-bad-exit=1" in call


@pytest.mark.parametrize("name", TRAINERS)
def test_a_job_goes_back_into_the_queue_and_keeps_its_log(name: str) -> None:
    options = {line.split()[1] for line in (JOBS / name).read_text().splitlines() if line.startswith("#SBATCH")}
    assert {"--requeue", "--open-mode=append"} <= options


def test_a_trainium_job_starts_a_process_for_each_core_of_whatever_node_it_is_on(tmp_path: Path) -> None:
    command = submit(tmp_path, "neuron.sbatch", "--steps", "7")
    assert not any("gres" in line for line in (JOBS / "neuron.sbatch").read_text().splitlines() if "#SBATCH" in line)
    # What srun runs on the worker, there.
    worker = tmp_path / "worker/lib/training"
    worker.mkdir(parents=True)
    (worker / "with_neuron.sh").write_text('#!/bin/bash\nprintf "%s\\n" "$@" "cores ${NEURON_RT_NUM_CORES-unset}"\n')
    script = command[command.index("-c") + 1].replace(str(ROOT / "lifecycle"), str(tmp_path / "worker/lib"))
    given = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "MASTER_ADDR": "first", "MASTER_PORT": "1", "HERE": "/here"}
    done = subprocess.run(
        ["bash", "-c", script, *command[command.index("-c") + 2 :]],
        env={"PATH": os.environ["PATH"], "OUT": "/out", "NEURON_RT_NUM_CORES": "8", **given},
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.split("\n")
    assert said[:1] == ["torchrun"]
    assert said[said.index("--nproc_per_node") + 1] == "8"
    assert said[-7:-1] == ["/here/neuron_train.py", "--out", "/out", "--steps", "7", "cores unset"]


def environments(tmp_path: Path, *names: str) -> dict[str, str]:
    for name in names:
        command = tmp_path / name / "bin/torchrun"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\necho "{name} $1 ${{PATH%%:*}}"\n')
        command.chmod(0o755)
        if not name.endswith("2_11"):
            (tmp_path / name / "lib/python3.10/site-packages/torch_xla").mkdir(parents=True)
    return {"PATH": os.environ["PATH"], "HYPERPOD_OPT": str(tmp_path)}


def with_neuron(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = ROOT / "lifecycle/training/with_neuron.sh"
    return subprocess.run(
        ["bash", str(script), "torchrun", "x"], env=environment, capture_output=True, text=True, check=False
    )


def test_the_newest_training_environment_of_a_neuron_image_is_taken(tmp_path: Path) -> None:
    # AWS's last PyTorch with torch_xla, which the trainers import, is 2.9 (Neuron's release notes, PyTorch, 2.29.0).
    names = ("2_8", "2_9", "2_11", "2_9_nxd_inference", "inference_vllm_0_24_0")
    given = environments(tmp_path, *(f"aws_neuronx_venv_pytorch_{name}" for name in names), "aws_neuronx_venv_jax_0_7")
    newest = tmp_path / "aws_neuronx_venv_pytorch_2_9"
    assert with_neuron(given).stdout == f"{newest.name} x {newest}/bin\n"


def test_another_environment_can_be_named(tmp_path: Path) -> None:
    given = environments(tmp_path, "aws_neuronx_venv_pytorch_2_9", "mine")
    assert with_neuron({**given, "NEURON_VENV": str(tmp_path / "mine")}).stdout.startswith("mine x")


def test_a_node_without_an_environment_says_how_to_name_one(tmp_path: Path) -> None:
    done = with_neuron(environments(tmp_path, "aws_neuronx_venv_pytorch_2_11"))
    assert done.returncode == 127
    assert "no Neuron environment with torchrun here" in done.stderr
    assert "NEURON_VENV may name one" in done.stderr


def test_a_container_brings_its_own_environment(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "of the image $1"\n')
    (tmp_path / "torchrun").chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HYPERPOD_OPT": str(tmp_path), "CONTAINER_IMAGE": "image"}
    assert with_neuron(given).stdout == "of the image x\n"


def test_no_rank_listens_on_a_port_that_linux_gives_to_others() -> None:
    """Linux, ip-sysctl.rst, ip_local_port_range: 32768 to 60999, among them those of srun on the first node."""
    ours = (*FILES, *(ROOT / "lifecycle" / name for name in ("hyperpod_commands/nanogpt.py", "training/gloo_sweep.py")))
    found = re.findall(r"\b(\d{5}) \+ .*?% (\d+)", "".join(path.read_text() for path in ours))
    assert len(found) == 8, found
    assert max(int(first) + int(count) for first, count in found) + 7 < 32768


def test_weights_are_read_by_a_word_that_every_release_of_transformers_takes() -> None:
    """In transformers "dtype" is new in 4.56; before, a model's constructor got it and failed. "torch_dtype" is still
    taken by 5 (modeling_utils.py, "kept for BC")."""
    for path in sorted(JOBS.glob("*_llama.py")):
        for found in re.findall(r"AutoModelForCausalLM\.from_pretrained\((.*)\)", path.read_text()):
            assert ", torch_dtype=" in found, path.name


def test_the_documentation_names_every_job_and_no_other() -> None:
    text = (ROOT / "docs/slurm.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+\.sbatch)`", text, re.M)) == NAMES


@pytest.mark.parametrize(
    ("variables", "processes", "program"),
    [
        ({"SLURM_GPUS_ON_NODE": "8"}, "8", "with_torch.sh -m torch.distributed.run"),
        ({"NEURON_RT_NUM_CORES": "32"}, "32", "with_neuron.sh torchrun"),
        ({}, "1", "with_torch.sh -m torch.distributed.run"),
    ],
)
def test_a_script_of_ones_own_gets_a_process_for_each_device(
    tmp_path: Path, variables: dict[str, str], processes: str, program: str
) -> None:
    call = submit(tmp_path, "torchrun.sbatch", "train.py", "--steps", "5 5")
    script, name, *words = call[call.index("bash") + 2 :]
    told = script.replace("exec ", "printf '%s\\n' ").replace("unset", "unset PATH; unset")
    values = {"HERE": str(tmp_path), "SLURM_NNODES": "2", "SLURM_NODEID": "1", "PATH": "/usr/bin:/bin"}
    values |= {"MASTER_ADDR": "first", "MASTER_PORT": "20049"}
    done = subprocess.run(
        ["bash", "-c", told, name, *words], env={**values, **variables}, capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert " ".join(said).endswith(
        f"{program} --nnodes 2 --nproc_per_node {processes} --node_rank 1 "
        "--master_addr first --master_port 20049 train.py --steps 5 5"
    )
    assert said[-1] == "5 5"


def test_a_rank_for_each_gpu_trains_in_the_folder_of_the_job_that_resumes_it(tmp_path: Path) -> None:
    call = submit(tmp_path, "trainer.sbatch", "lora_train.py", "--max_steps", "5 5")
    script, name, *words = call[call.index("bash") + 2 :]
    assert words == [f"{tmp_path}/checkpoints/it-7", "lora_train.py", "--max_steps", "5 5"]
    values = {"HERE": "/here", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_GPUS_ON_NODE": "8", "PATH": "/bin"}
    values |= {"MASTER_ADDR": "first", "MASTER_PORT": "20049", "PYTHON": "/fsx/envs/lora/bin/python"}
    told = script.replace("exec ", "printf '%s\n' ")
    done = subprocess.run(["bash", "-c", told, name, *words], env=values, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "/fsx/envs/lora/bin/python", "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "8",
        "--node_rank", "1", "--master_addr", "first", "--master_port", "20049",
        "/here/lora_train.py", "--out", f"{tmp_path}/checkpoints/it-7", "--max_steps", "5 5",
    ]  # fmt: skip


def test_a_trainer_that_no_python_has_is_refused_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="neither CONTAINER_IMAGE nor PYTHON is set"):
        submit(tmp_path, "trainer.sbatch", "lora_train.py", PYTHON="")


def test_a_test_of_the_projects_runs_in_the_jobs_own_allocation(tmp_path: Path) -> None:
    copy = tmp_path / "test.sbatch"
    shutil.copy(JOBS / "test.sbatch", copy)
    done = subprocess.run(
        ["bash", str(copy), "sh", "-c", 'echo "$HYPERPOD_INSIDE"; exit 3'],
        env={"PATH": "/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "2\n")

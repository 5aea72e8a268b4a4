"""The shell scripts, run as they are shipped, and the rules that every shipped file keeps."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hyperpod_node.network import environment
from hyperpod_node.system import programs

from tests.lifecycle.rig import LIFECYCLE
from tests.rows import each

SCRIPTS = sorted([*LIFECYCLE.rglob("*.sh"), *(LIFECYCLE.parent / "jobs/slurm").glob("*.s*")])
PYTHON = sorted(LIFECYCLE.rglob("*.py"))


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(LIFECYCLE / "slurm" / script)],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def task_prolog(tmp_path: Path, env: str, **environment: str) -> dict[str, str | None]:
    """What a task has after its prolog: name to value, None where it was unset."""
    (tmp_path / "task.env").write_text(env)
    found: dict[str, str | None] = {}
    for line in run("task-prolog.sh", HYPERPOD_TASK_ENV=str(tmp_path / "task.env"), **environment).stdout.splitlines():
        verb, _, rest = line.partition(" ")
        name, _, value = rest.partition("=")
        found[name] = value if verb == "export" else None
    return found


def test_a_task_gets_its_nodes_variables(tmp_path: Path) -> None:
    found = task_prolog(tmp_path, "FI_PROVIDER=efa\nNEURON_CC_FLAGS=--a b=c\n")
    assert found["FI_PROVIDER"] == "efa"
    assert found["NEURON_CC_FLAGS"] == "--a b=c"


def test_what_a_job_sets_itself_stays(tmp_path: Path) -> None:
    assert "NCCL_DEBUG" not in task_prolog(tmp_path, "NCCL_DEBUG=WARN\n", NCCL_DEBUG="INFO")


def test_what_another_nodes_prolog_set_is_replaced_by_this_nodes_own(tmp_path: Path) -> None:
    first = task_prolog(tmp_path, "FI_PROVIDER=efa\nHYPERPOD_TRANSPORT=efa-rdma\nNCCL_DEBUG=WARN\n", NCCL_DEBUG="INFO")
    given = {name: value for name, value in first.items() if value} | {"NCCL_DEBUG": "INFO"}
    second = task_prolog(tmp_path, "HYPERPOD_TRANSPORT=tcp\nNCCL_NET_PLUGIN=none\nNCCL_DEBUG=WARN\n", **given)
    assert second["HYPERPOD_TRANSPORT"] == "tcp"
    assert second["NCCL_NET_PLUGIN"] == "none"
    assert second["FI_PROVIDER"] is None
    assert "NCCL_DEBUG" not in second


def test_a_step_of_several_nodes_may_use_efa_alone_and_one_within_it_on_one_node_what_it_likes(tmp_path: Path) -> None:
    (tmp_path / "task-nodes.env").write_text("NCCL_NET=AWS Libfabric\n")
    assert "NCCL_NET" not in task_prolog(tmp_path, "FI_PROVIDER=efa\n")
    assert "NCCL_NET" not in task_prolog(tmp_path, "FI_PROVIDER=efa\n", SLURM_STEP_NUM_NODES="1")
    step = task_prolog(tmp_path, "FI_PROVIDER=efa\n", SLURM_STEP_NUM_NODES="2")
    assert step["NCCL_NET"] == "AWS Libfabric"
    assert "NCCL_NET" not in task_prolog(tmp_path, "FI_PROVIDER=efa\n", SLURM_STEP_NUM_NODES="2", NCCL_NET="Socket")
    given = {name: value for name, value in step.items() if value} | {"SLURM_STEP_NUM_NODES": "1"}
    assert task_prolog(tmp_path, "FI_PROVIDER=efa\n", **given)["NCCL_NET"] is None


def test_a_task_finds_the_commands_of_its_accelerators_network_and_scheduler() -> None:
    """Neuron's are in /opt/aws/neuron/bin (AWS Neuron documentation, "Neuron System Tools": neuron-ls, neuron-top)."""
    script = (LIFECYCLE / "slurm/task-prolog.sh").read_text().replace("\\\n", "")
    ours = next(line for line in script.splitlines() if line.startswith("add PATH")).split()[2:]
    folders = ["/opt/slurm/bin", "/opt/amazon/openmpi/bin", "/opt/amazon/efa/bin", "/opt/aws/neuron/bin"]
    assert ours == [*folders, "/opt/hyperpod/bin"]


def test_a_task_gets_folders_of_commands_that_exist_once_and_after_its_own(tmp_path: Path) -> None:
    """The script with its folders below another root: the real ones are where the node's image has them."""
    for folder in ("opt/aws/neuron/bin", "opt/hyperpod/bin"):
        (tmp_path / folder).mkdir(parents=True)
    script = (LIFECYCLE / "slurm/task-prolog.sh").read_text().replace(" /opt/", f" {tmp_path}/opt/")
    given = {"PATH": f"/usr/bin:/bin:{tmp_path}/opt/hyperpod/bin"}
    done = subprocess.run(["bash", "-c", script], env=given, capture_output=True, text=True, check=True)
    assert f"export PATH={given['PATH']}:{tmp_path}/opt/aws/neuron/bin\n" in done.stdout


def test_a_job_loads_no_cuda_in_place_of_its_pytorchs_own() -> None:
    """PyTorch's wheels come with CUDA's libraries, and LD_LIBRARY_PATH comes before what those name of each other
    (pytorch/pytorch, issue 111469: "undefined symbol: __nvJitLinkAddData_12_1")."""
    script = (LIFECYCLE / "slurm/task-prolog.sh").read_text().replace("\\\n", "")
    ours = next(line for line in script.splitlines() if line.startswith("add LD_LIBRARY_PATH")).split()[2:]
    assert ours == list(environment.LIBRARIES)
    assert [folder for folder in ours if "cuda" in folder] == []


def test_a_node_without_a_file_gives_nothing(tmp_path: Path) -> None:
    done = run("task-prolog.sh", HYPERPOD_TASK_ENV=str(tmp_path / "none"))
    assert done.returncode == 0
    assert "NCCL" not in done.stdout


def prolog(tmp_path: Path, facts: str, mounts: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "prolog.env").write_text(facts)
    (tmp_path / "mounts").write_text(mounts)
    return run("prolog.sh", HYPERPOD_STATE=str(tmp_path), HYPERPOD_MOUNTS=str(tmp_path / "mounts"), SLURM_JOB_ID="7")


def test_a_prolog_drains_a_node_without_its_file_system_or_with_a_lost_device(tmp_path: Path) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "nvidia0").touch()
    facts = f"shared='/fsx'\ndevices=1\npattern='{devices}/nvidia[0-9]*'\nscratch='/none'\n"
    mounted = "x@tcp:/y /fsx lustre rw 0 0\n"
    assert prolog(tmp_path, facts, mounted).returncode == 0
    lost = prolog(tmp_path, facts, "")
    assert (lost.returncode, lost.stderr) == (1, "hyperpod prolog: /fsx is not mounted\n")
    # systemd.automount(5): its autofs is there from the boot on, whether or not the mount works.
    waiting = "systemd-1 /fsx autofs rw,relatime,fd=51 0 0\n"
    assert prolog(tmp_path, facts, waiting).stderr == "hyperpod prolog: /fsx is not mounted\n"
    assert prolog(tmp_path, facts, waiting + mounted).returncode == 0
    (devices / "nvidia0").unlink()
    gone = prolog(tmp_path, facts, mounted)
    assert gone.returncode == 1
    assert "0 of 1 devices" in gone.stderr


def test_the_prolog_creates_a_jobs_scratch_folder_and_the_epilog_deletes_it(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    facts = f"shared=''\ndevices=0\npattern=''\nscratch='{scratch}'\n"
    uid = os.getuid()
    (tmp_path / "prolog.env").write_text(facts)
    (tmp_path / "mounts").write_text(f"/dev/md0 {scratch} ext4 rw 0 0\n")
    given = {"HYPERPOD_STATE": str(tmp_path), "HYPERPOD_MOUNTS": str(tmp_path / "mounts"), "SLURM_JOB_ID": "7"}
    assert run("prolog.sh", SLURM_JOB_UID=str(uid), **given).returncode == 0
    assert (scratch / "jobs/7").stat().st_mode & 0o777 == 0o700
    assert run("epilog.sh", **given).returncode == 0
    assert not (scratch / "jobs/7").exists()


def test_where_the_image_mounts_the_disks_a_jobs_scratch_folder_is_made_behind_the_link(tmp_path: Path) -> None:
    disks = tmp_path / "dlami"
    disks.mkdir()
    (tmp_path / "scratch").symlink_to(disks)
    (tmp_path / "prolog.env").write_text(f"shared=''\ndevices=0\npattern=''\nscratch='{tmp_path}/scratch'\n")
    (tmp_path / "mounts").write_text("")
    given = {"HYPERPOD_STATE": str(tmp_path), "HYPERPOD_MOUNTS": str(tmp_path / "mounts"), "SLURM_JOB_ID": "7"}
    run("prolog.sh", SLURM_JOB_UID=str(os.getuid()), **given)
    assert not (disks / "jobs").exists(), "the disks are not mounted yet: it would be on the root volume"
    (tmp_path / "mounts").write_text(f"/dev/mapper/vg.01-lv_ephemeral {disks} ext4 rw 0 0\n")
    run("prolog.sh", SLURM_JOB_UID=str(os.getuid()), **given)
    assert (disks / "jobs/7").is_dir()


def test_enroot_has_a_folder_of_the_user_alone_on_the_fastest_disk_and_follows_nobodys_link(tmp_path: Path) -> None:
    for folder in ("scratch", "root", "theirs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "scratch/enroot").symlink_to(tmp_path / "theirs")
    containers, uid = tmp_path / "run", os.getuid()
    facts = f"shared=''\ndevices=0\npattern=''\nscratch='{tmp_path}/scratch'\ncontainers='{containers}'\n"
    (tmp_path / "prolog.env").write_text(facts)
    mounts = tmp_path / "mounts"
    mounts.write_text("")
    given = {"HYPERPOD_STATE": str(tmp_path), "HYPERPOD_MOUNTS": str(mounts), "HYPERPOD_ROOT_DISK": f"{tmp_path}/root"}
    # Pyxis has made this one, after a prolog that failed.
    (containers / str(uid)).mkdir(parents=True)
    for disk in ("root", "scratch", "scratch"):
        assert run("prolog.sh", SLURM_JOB_UID=str(uid), SLURM_JOB_ID="7", **given).returncode == 0
        made = tmp_path / disk / "enroot"
        assert (containers / str(uid)).readlink() == made / str(uid)
        assert made.lstat().st_mode & 0o170777 == 0o040711
        assert (made / str(uid)).stat().st_mode & 0o777 == 0o700
        mounts.write_text(f"/dev/md0 {tmp_path}/scratch ext4 rw 0 0\n")
    assert list((tmp_path / "theirs").iterdir()) == []
    assert run("prolog.sh", **given).returncode == 0


@pytest.mark.parametrize(
    ("claim", "known", "written"),
    [
        ('{"address": "10.1.0.77", "hostname": "a"}', "10.1.0.10", "HYPERPOD_CONTROLLERS=10.1.0.77,10.1.0.10\n"),
        ('{"address": "10.1.0.10", "hostname": "a"}', "10.1.0.10", None),
        ('{"address": "10.1.0.10", "hostname": "a"}', "10.1.0.20,10.1.0.10", None),
        ("", "10.1.0.10", None),
        (None, "10.1.0.10", None),
    ],
)
def test_slurmd_asks_the_controller_that_claims_the_cluster_now(
    tmp_path: Path, claim: str | None, known: str, written: str | None
) -> None:
    if claim is not None:
        (tmp_path / "controller.json").write_text(claim)
    file = tmp_path / "controllers"
    done = subprocess.run(
        ["bash", str(LIFECYCLE / "slurm/conf-server.sh"), str(tmp_path / "controller.json")],
        env={"PATH": os.environ["PATH"], "HYPERPOD_CONTROLLERS": known, "HYPERPOD_CONTROLLERS_FILE": str(file)},
        check=False,
    )
    assert done.returncode == 0
    assert (file.read_text() if file.exists() else None) == written


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("TopologyPlugin=topology/tree\n", True),
        ("PartitionName=gpu Nodes=ALL Topology=tree\n", True),
        ("#without-a-map# TopologyPlugin=topology/tree\nPartitionName=gpu Nodes=ALL\n", False),
    ],
)
def test_a_topology_is_settled_before_slurmctld_reads_it(tmp_path: Path, text: str, settled: bool) -> None:
    shutil.copy(LIFECYCLE / "slurm/settle.sh", tmp_path / "hyperpod-settle")
    (tmp_path / "hyperpod-configure").write_text("#!/bin/sh\necho configured\n")
    (tmp_path / "hyperpod-configure").chmod(0o755)
    (tmp_path / "slurm.conf").write_text(text)
    done = subprocess.run(
        ["bash", str(tmp_path / "hyperpod-settle"), str(tmp_path / "slurm.conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "configured\n" if settled else "")


def end_job(command: str | None) -> subprocess.CompletedProcess[str]:
    return run("end-job.sh", **({} if command is None else {"SSH_ORIGINAL_COMMAND": command}))


def test_the_controllers_key_ends_what_a_job_has_left(tmp_path: Path) -> None:
    started = [subprocess.Popen(["sleep", "60"], env={**os.environ, "SLURM_JOB_ID": job}) for job in ("98760", "9876")]
    try:
        assert end_job("9876").returncode == 0
        assert started[1].wait(10) == -9
        assert started[0].poll() is None
    finally:
        started[0].kill()


# Stands for every command that would look at, or do something to, the machine.
NOTED = """#!/bin/sh
echo "${0##*/} $*" >> $NOTES
case "${0##*/} $1" in "systemctl show") echo "$STARTED" ;; grep*) echo "/proc/$JOB/environ" ;; esac
"""


@pytest.mark.parametrize(("seconds", "told"), [(600, True), (5, False)])
def test_a_node_that_was_cut_off_ends_every_job_and_registers_unless_slurmd_has_just_started(
    tmp_path: Path, seconds: int, told: bool
) -> None:
    for name in ("systemctl", "pkill", "grep"):
        (tmp_path / name).write_text(NOTED)
        (tmp_path / name).chmod(0o755)
    started = int((float(Path("/proc/uptime").read_text().split()[0]) - seconds) * 1e6)
    with subprocess.Popen(["sleep", "60"]) as job:
        values = {"NOTES": tmp_path / "notes", "STARTED": started, "JOB": job.pid, "PATH": f"{tmp_path}:/usr/bin:/bin"}
        given = {name: str(value) for name, value in values.items()}
        assert run("end-job.sh", SSH_ORIGINAL_COMMAND="rejoin", **given).returncode == 0
        assert (job.poll() is None) is not told or job.wait(10) == -9
        job.kill()
    done = [line.split(" /proc")[0] for line in (tmp_path / "notes").read_text().splitlines()[1:]]
    everything = ["pkill -KILL -f ^slurmstepd: ", "grep -lzxs SLURM_JOB_ID=[0-9]*", "systemctl restart slurmd"]
    assert done == (everything if told else [])


@pytest.mark.parametrize(
    "command", [None, "", "id", "rejoin; id", "9876; touch ran", "$(touch ran)", "9876\ntouch ran", "-1"]
)
def test_the_controllers_key_does_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = end_job(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "root's key ends the job of this number, and does nothing else; log in as ubuntu\n"
    assert list(tmp_path.iterdir()) == []


def test_on_create_says_what_is_missing_in_its_last_line(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(LIFECYCLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    given = {name: str(tmp_path / name[9:].lower()) for name in ("HYPERPOD_LOG", "HYPERPOD_LOCK")}
    done = subprocess.run(
        [str(source / "on_create.sh")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    # As root it would be the machine's own, which the rehearsal's audit calls a leftover.
    assert (tmp_path / "lock").exists() == (os.geteuid() == 0)
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("step parameters failed: ")
    assert (tmp_path / "log").read_text() == done.stdout
    assert not list(source.rglob("__pycache__"))


@pytest.mark.slow
def test_shell_scripts_are_clean() -> None:
    # Of the environment that runs the tests, which need not be on PATH.
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert shellcheck, "shellcheck is in requirements-dev.in"
    done = subprocess.run([shellcheck, *map(str, SCRIPTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@each(PYTHON)
def test_node_python_is_that_of_3_8(path: Path) -> None:
    import ast

    ast.parse(path.read_text(), feature_version=(3, 8))


@each([*PYTHON, *SCRIPTS])
def test_nothing_is_fetched_from_a_public_host_and_no_forbidden_variable_is_set(path: Path) -> None:
    text = path.read_text()
    if path.parent.name == "slurm" and path.parent.parent.name == "jobs":
        text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"\b(curl|wget|git clone|pip3? install|apt-get|https?://(?!169\.254|localhost:))", text)
    assert not re.search(r"(export\s+|\b)NCCL_(ALGO|PROTO|TREE_THRESHOLD)\s*=", text)
    assert "StrictHostKeyChecking no" not in text


def test_every_command_has_a_module_and_every_module_is_shipped() -> None:
    for module, _ in programs.COMMANDS.values():
        assert (LIFECYCLE / (module.replace(".", "/") + ".py")).is_file()
    for name in programs.SCRIPTS:
        assert (LIFECYCLE / name).is_file()

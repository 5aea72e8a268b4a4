"""What somebody plants where another person's jobs look for downloads and compiled programs: both can contain code."""

import getpass
import subprocess
from pathlib import Path

import pytest

from tests.jobs.test_sbatch import submit
from tests.lifecycle.rig import LIFECYCLE

# Each job that has one: its cache, and the variable that names another.
CACHES = {
    "fsdp_llama.sbatch": ("huggingface", "HF_HOME"),
    "trainer.sbatch": ("huggingface", "HF_HOME"),
    "neuron.sbatch": ("neuron-cache", "NEURON_COMPILE_CACHE_URL"),
}
OWN_FOLDER = LIFECYCLE / "training/own_folder.sh"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.mark.parametrize("name", CACHES)
def test_a_job_uses_a_cache_of_its_users_own(tmp_path: Path, name: str) -> None:
    cache = f"checkpoints/{CACHES[name][0]}-{getpass.getuser()}"
    submit(tmp_path, name)
    assert (tmp_path / cache).is_dir()


@pytest.mark.parametrize("name", CACHES)
def test_a_job_with_a_planted_cache_ends_and_says_what_names_another(tmp_path: Path, name: str) -> None:
    kind, variable = CACHES[name]
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "planted").mkdir()
    (tmp_path / f"checkpoints/{kind}-{getpass.getuser()}").symlink_to(tmp_path / "planted")
    with pytest.raises(
        AssertionError, match=f"{kind}-{getpass.getuser()} is a link or somebody else's: {variable}=FOLDER"
    ):
        submit(tmp_path, name)
    assert not (tmp_path / "calls").exists(), "it began all the same"


def test_what_a_user_names_is_used_as_it_is(tmp_path: Path) -> None:
    submit(tmp_path, "fsdp_llama.sbatch", HF_HOME="/fsx/models")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["it-7"]


@pytest.mark.root
def test_a_folder_of_another_user_is_refused(everybodys: Path) -> None:
    checkpoints = everybodys / "checkpoints"
    checkpoints.mkdir()
    checkpoints.chmod(0o1777)
    planted = checkpoints / "huggingface-root"
    subprocess.run([*NOBODY, "mkdir", "-m", "0777", str(planted)], check=True)
    for folder, allowed in ((planted, False), (checkpoints / "own", True)):
        done = subprocess.run(
            ["bash", str(OWN_FOLDER), str(folder), "HF_HOME"], capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) is allowed
        assert ("HF_HOME=FOLDER names one of your own" in done.stderr) is not allowed
    assert (checkpoints / "own").stat().st_mode & 0o022 == 0

"""``diagnose``: one archive of nodes and cluster, without secrets, and the test of a node's GPUs."""

import base64
import gzip
import re
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from operations.cluster import device_tests, diagnose, sessions
from operations.cluster import nodes as cluster_nodes
from operations.cluster.node import Node
from operations.cluster.secrets import without_secrets
from operations.cluster.sessions import Remote
from operations.failures import Exit, Failure
from tests.dcgm import diagnosis
from tests.operations.aws import NODES, StubbedAws, ended, run, run_json, stack, with_nodes

CANARY = "Xq7vT2mZr9"
# A line, and whether it is nothing but a secret's place.
SECRETS = (
    f"aws_secret_access_key = {CANARY}",
    f'"SecretAccessKey": "{CANARY}",',
    f"export HF_TOKEN={CANARY}",
    f"WANDB_API_KEY: {CANARY}",
    f"mysql --password {CANARY} -u slurm",
    f"mysql --password={CANARY}",
    f"StoragePass=slurm DbPassword={CANARY}",
    f"https://user:{CANARY}@example.com/repository",
    f"Authorization: Bearer {CANARY}",
    f"'authorization': 'Basic {CANARY}'",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{CANARY} and the file was cut",
    "AKIAIOSFODNN7EXAMPLE was refused".replace("IOSFODNN7EXAMPLE", "Q7VT2MZR9Q7VT2MZ"),
    f"token hf_{CANARY}{CANARY}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ{CANARY}.{CANARY}",
    f"secure: v1:{CANARY}AAAA:{CANARY}AAAA",
)
KEPT = (
    "slurmd: error: Unable to register: Zero Bytes were transmitted or received",
    "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, GPU has fallen off the bus.",
    "AuthType                = auth/munge",
    "10.1.1.2:/fsx on /fsx type lustre (rw,flock)",
    "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod.html",
)


def test_secrets_are_removed_whatever_form_they_have() -> None:
    for text in SECRETS:
        found = without_secrets(text)
        assert CANARY not in found, text
        assert "Q7VT2MZR9" not in found, text
        assert "[removed]" in found, text


def test_what_a_reader_needs_is_kept() -> None:
    for line in KEPT:
        assert without_secrets(line) == line


def test_a_nodes_script_runs_here_and_every_section_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {
        "system": "uname -s; echo $0",
        "gpu": "no-such-command -q",
        "boot": "sleep 30",
        "processes": "seq 90000",
    }
    monkeypatch.setattr(diagnose, "SECTIONS", sections)
    monkeypatch.setattr(diagnose, "_SECTION_SECONDS", 0.4)
    done = subprocess.run(["bash"], input=diagnose.script(), capture_output=True, text=True, timeout=20, check=True)
    found = diagnose.parse(done.stdout)
    assert list(found) == list(sections)
    assert found["system"].startswith("Linux\n")
    assert "no-such-command: command not found" in found["gpu"]
    assert found["boot"] == "\n"
    assert len(found["processes"]) <= 256 * 1024
    assert found["processes"].endswith("90000\n"), "the end says most"


def test_every_counter_of_efa_is_read_wherever_the_kernel_has_it(tmp_path: Path) -> None:
    """Since Linux 5.14 a device has counters of its own besides its port's (efa_verbs.c, EFA_DEFINE_DEVICE_STATS)."""
    for name in ("hw_counters/cmds_err", "ports/1/hw_counters/rx_drops"):
        path = tmp_path / "rdmap0s6" / name
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    folders = re.findall(r"/sys/class/infiniband/(\S+)", diagnose.SECTIONS["efa"])
    found = {path.name for one in folders for folder in tmp_path.glob(one) for path in folder.iterdir()}
    assert found == {"cmds_err", "rx_drops"}


def test_every_command_of_a_section_is_one_that_a_shell_can_read() -> None:
    for name, command in diagnose.SECTIONS.items():
        done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_a_mark_in_a_log_makes_no_file_of_its_own() -> None:
    mark = diagnose.MARK
    text = f"\n{mark} boot\none\n{mark} ../../etc/passwd\n@@section kernel\ntwo\n\n{mark} kernel\nthree\n"
    assert diagnose.parse(text) == {
        "boot": f"one\n{mark} ../../etc/passwd\n@@section kernel\ntwo\n",
        "kernel": "three\n",
    }


def test_ill_nodes_and_the_controller_say_most() -> None:
    def node(name: str, role: str, **more: str) -> Node:
        made = {"status": "Running", **more}
        return Node(name=name, group="g", role=role, instance_id=name, instance_type="", **made)

    controller, well = node("c", "controller"), [node(f"w{number}", "worker") for number in range(20)]
    assert [one.name for one in diagnose.most_telling([controller, *well])] == ["c", "w0"]
    drained, failed = node("d", "worker", reason="hyperpod-health: ecc"), node("f", "worker", status="Failure")
    assert [one.name for one in diagnose.most_telling([controller, *well, drained, failed])] == ["c", "d", "f"]
    assert len(diagnose.most_telling([controller, *(node(f"d{n}", "worker", reason="x") for n in range(20))])) == 8


def answer(text: str) -> str:
    """What a node's session prints."""
    return base64.encodebytes(gzip.compress(text.encode())).decode()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What runs on nodes, by node; a worker's log has a secret in it. ``dcgm``: what DCGM's test prints."""
    found = {"dcgm": diagnosis((80, 6))}

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        if line.startswith("sinfo --noheader --Node"):
            return Remote(code=0, output="ip-10-1-1-1|idle|none\nip-10-1-1-2|drained|hyperpod-health: ecc\n")
        if line.startswith("sinfo -h -n"):
            return Remote(code=0, output="idle\n")
        found[node.name] = line
        if "dcgmi" in line:
            return Remote(code=226, output=found["dcgm"])
        if node.name == "controller-1":
            return Remote(code=0, output=answer("cut")[:12])
        return Remote(
            code=0, output=answer(f"\n{diagnose.MARK} boot\nHF_TOKEN={CANARY}\n{diagnose.MARK} kernel\nXid 79\n")
        )

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return found


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        files = {member.name.split("/", 1)[1]: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_the_archive_has_nodes_and_cluster_and_no_secret(
    asked: dict[str, str], aws: StubbedAws, tmp_path: Path
) -> None:
    with_nodes(aws)
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    code, found = run_json("diagnose", "dev", "--write", str(tmp_path / "here" / "all.tar.gz"))
    archive = Path(found["archive"])
    files = contents(archive)
    assert sorted(files) == found["files"]
    assert files["workers-2/kernel.txt"] == "Xid 79\n"
    assert files["workers-2/boot.txt"] == "HF_TOKEN=[removed]\n"
    assert '"ClusterStatus": "InService"' in files["cluster/cluster.json"]
    assert "hyperpod-health: ecc" in files["cluster/nodes.json"]
    assert CANARY not in "".join(files.values())
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    # The controller's answer was cut short: that is said, and the rest is there.
    assert code == Exit.CANNOT_KNOW
    assert found["failures"][0].startswith("controller-1: its answer was truncated")
    assert "Failed: controller-1" in files["README.txt"]
    assert found["left_out"] == ["workers-1"], "it is well"


def level_two(aws: StubbedAws, archive: Path) -> tuple[int, str]:
    """The exit code and the words of a test of level 2."""
    with_nodes(aws)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(NODES)})
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    return run("diagnose", "dev", "workers-2", "--level", "2", "--write", str(archive))[:2]


def test_a_failed_gpu_test_is_in_the_archive_and_in_the_exit_code(
    asked: dict[str, str], aws: StubbedAws, tmp_path: Path
) -> None:
    archive = tmp_path / "node.tar.gz"
    code, out = level_two(aws, archive)
    assert code == Exit.FAILED
    assert "FAIL workers-2: dcgmi diag -r 2 failed: software" in out
    began = "sudo -n /opt/slurm/bin/srun --job-name=diagnose --nodelist=ip-10-1-1-2 --nodes=1"
    assert asked["controller-1"].startswith(began)
    assert asked["controller-1"].endswith("--exclusive --immediate=60 --time=15 dcgmi diag -r 2 -j")
    assert contents(archive)["workers-2/dcgm-level-2.txt"] == diagnosis((80, 6))


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        # By dcgm_errors.c: DCGM_FR_PERSISTENCE_MODE, of severity "can be configured".
        (diagnosis((29, 5)), Exit.GOOD, "PASS workers-2: dcgmi diag -r 2 warns of: software"),
        (
            "srun: error: Unable to allocate\n",
            Exit.CANNOT_KNOW,
            "UNKNOWN workers-2: dcgmi diag -r 2 gave no JSON: srun",
        ),
    ],
)
def test_a_gpu_test_that_only_warns_or_does_not_answer_has_not_failed(
    printed: str, code: Exit, said: str, asked: dict[str, str], aws: StubbedAws, tmp_path: Path
) -> None:
    asked["dcgm"] = printed
    found, out = level_two(aws, tmp_path / "node.tar.gz")
    assert found == code
    assert said in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dev", "--level", "2"), "--level without NODE"),
        (("dev", "workers-1", "--level", "5"), "less than or equal to 4"),
        (("dev", "controller", "--level", "1"), "controller-1 has no GPUs"),
        (("dev", "wrokers-1"), "did you mean workers-1?"),
    ],
)
def test_what_cannot_be_asked_is_bad_input(
    words: tuple[str, ...], said: str, asked: dict[str, str], aws: StubbedAws
) -> None:
    if "--level" not in words or "controller" in words:
        with_nodes(aws)
    _, err = ended(Exit.BAD_INPUT, "diagnose", *words)
    assert said in err


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (1, "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"),
        (1, "squeue: error: Invalid node name ip-10-1-1-1\n"),
        (0, "\n"),
    ],
)
def test_a_node_that_slurm_tells_nothing_of_is_not_said_to_run_the_words_of_an_error(
    code: int, output: str, aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        asked.append(line)
        return Remote(code=code, output=output)

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    with_nodes(aws)
    target = stack(aws)
    found = cluster_nodes.list_nodes(target)
    with pytest.raises(Failure, match=f"Slurm does not report the state of workers-1.*{output.strip()[:20]}"):
        device_tests.run(target, found, cluster_nodes.find(found, "workers-1"), 1)
    assert len(asked) == 1


def test_a_busy_node_is_not_tested_and_a_drained_one_is_tested_directly(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = ["allocated\n4711\n", "drained\n"]
    ran: list[tuple[str, str]] = []

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        if line.startswith("sinfo -h -n"):
            return Remote(code=0, output=said.pop(0))
        ran.append((node.name, line))
        return Remote(code=0, output=answer(f"\n{diagnose.MARK} boot\n") if "base64" in line else diagnosis())

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    with_nodes(aws)
    with_nodes(aws)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(NODES)})
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    words = ("diagnose", "dev", "workers-1", "--level", "1", "--write", str(tmp_path / "x.tar.gz"))
    code, _, err = run(*words)
    assert (code, ran) == (Exit.FAILED, [])
    assert "workers-1 runs job 4711" in err
    code, out, _ = run(*words)
    assert ran[0] == ("workers-1", "sudo -n timeout 120 dcgmi diag -r 1 -j")
    assert "PASS workers-1" in out

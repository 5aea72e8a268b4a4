"""How a rank of a training job ends, and which device it takes."""

import contextlib
import datetime
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hyperpod_commands import bandwidth

from tests.lifecycle.rig import LIFECYCLE

# As Gloo's process group: its destructor waits for what never comes.
STUCK = """
import sys, time
sys.path.insert(0, sys.argv[1])
from nanogpt import end, run

class Stuck:
    def __del__(self):
        time.sleep(600)

def main():
    stuck = Stuck()
    print("trained")
    {ending}

run(main)
"""


@pytest.mark.parametrize(("ending", "code"), [("end(0)", 0), ("raise ValueError('lost a peer')", 1)])
def test_a_rank_ends_at_once_whatever_its_destructors_wait_for(ending: str, code: int) -> None:
    script = STUCK.format(ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", script, str(LIFECYCLE / "training")], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (code, "trained\n")
    assert ("ValueError: lost a peer" in done.stderr) == bool(code)


def script(name: str) -> ModuleType:
    # As for a script: its neighbours are found.
    sys.path.append(str(LIFECYCLE / "training"))
    spec = importlib.util.spec_from_file_location(name, LIFECYCLE / f"training/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def nanogpt() -> ModuleType:
    return script("nanogpt")


@pytest.mark.parametrize(
    ("seen", "device"),
    [(8, "cuda:3"), (1, "cuda:0"), (0, "cpu")],
    ids=["all of a node's", "its own alone, by --gpus-per-task", "none"],
)
def test_the_fourth_rank_of_a_node_takes_a_gpu_that_it_sees(nanogpt: ModuleType, seen: int, device: str) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: seen > 0, device_count=lambda: seen))
    assert nanogpt._device(torch, 3) == device


class Store:
    """PyTorch's: a client that comes before the server sleeps a second, so it is seen whether one listened."""

    listened = False

    def __init__(self, address: str, port: int, *_: object, **__: object) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=1).close()
            self.listened = True
        self.values: dict[str, bytes] = {}

    def set(self, _: str, value: str) -> None:
        self.values = {"wish/0": value.encode(), "wish/1": value.encode()}

    def get(self, key: str) -> bytes:
        return self.values[key]


@pytest.mark.parametrize("rank", [0, 1])
def test_other_ranks_wait_for_the_first_one_s_store_and_then_lose_no_second(
    nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    stores: list[Store] = []

    def store(*args: Any, **rest: Any) -> Store:
        stores.append(Store(*args, **rest))
        return stores[0]

    made = SimpleNamespace(
        TCPStore=store,
        init_process_group=lambda *args, **rest: None,
    )
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False), distributed=made)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        later = threading.Timer(0.2, server.listen)
        later.start()
        assert nanogpt._join(torch, rank, 2) == "gloo"
        later.join()
    assert [store.listened for store in stores] == [rank == 1]


def test_a_checkpoint_without_space_is_said_and_leaves_no_half_of_one(nanogpt: ModuleType, tmp_path: Path) -> None:
    def save(state: object, file: Any) -> None:
        file.write(b"half of it")
        try:
            raise OSError(28, "No space left on device")
        finally:
            # PyTorch's own, from the end of its archive.
            raise RuntimeError("unexpected pos 40384 vs 40272")

    torch = SimpleNamespace(save=save, tensor=lambda rows: rows)
    part = SimpleNamespace(state_dict=lambda: {"state": {}})
    (tmp_path / "checkpoint-00000020.pt").write_text("whole")
    with pytest.raises(RuntimeError, match=r"checkpoint of iter 40 was not saved in .*: \[Errno 28\] No space left"):
        nanogpt._save(torch, tmp_path, part, part, 40, [])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000020.pt"]


def test_the_result_says_where_the_loss_began_and_ended_and_where_the_newest_checkpoint_is(
    nanogpt: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (0, 20, 40):
        (tmp_path / f"checkpoint-{step:08}.pt").touch()
    history = [(0, 4.25), (20, 3.5), (40, 2.5)]
    nanogpt._result(tmp_path, SimpleNamespace(steps=40), history, [100.0, 150.0], "nccl", 16)
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "steps": 40,
        "first_loss": 4.25,
        "last_loss": 2.5,
        "history": [list(one) for one in history],
        "ms_per_step": 125.0,
        "backend": "nccl",
        "world_size": 16,
        "checkpoint": str(tmp_path / "checkpoint-00000040.pt"),
    }
    assert capsys.readouterr().out == "done: 40 iterations, loss 4.2500 -> 2.5000\n"
    # A job that had ended and is started again trains no more.
    nanogpt._result(tmp_path, SimpleNamespace(steps=40), history, [], "nccl", 16)
    assert json.loads((tmp_path / "result.json").read_text())["ms_per_step"] == 0


# Gloo's sweep


def swept(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: int,
    collective: str,
    sizes: tuple[str, str] = ("1M", "4M"),
    job: tuple[str, str] | None = ("4007", "1"),
) -> str:
    """What a rank of four prints where every round takes a millisecond; PyTorch is not needed for that."""
    sweep, joined = script("gloo_sweep"), []
    distributed = SimpleNamespace(
        TCPStore=lambda *given, timeout: (*given, timeout),
        init_process_group=lambda *given, **more: joined.append((given, more)),
    )
    # More threads than one would only wait for each other.
    torch = SimpleNamespace(set_num_threads={1: None}.__getitem__, __version__="2.9", distributed=distributed)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)  # type: ignore[arg-type]

    def measure(*given: Any) -> tuple[float, int]:
        assert (given[:2], given[2].collective, given[4:]) == ((torch, distributed), collective, (rank, 4))
        return 0.001, 0

    monkeypatch.setattr(sweep, "_measure", measure)
    monkeypatch.setattr(sweep, "end", {0: None}.__getitem__)
    for name, value in (("PROCID", str(rank)), ("NTASKS", "4")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    for name, value in zip(("JOB_ID", "STEP_ID"), job or ("", ""), strict=True):
        if job:
            monkeypatch.setenv(f"SLURM_{name}", value)
        else:
            monkeypatch.delenv(f"SLURM_{name}", raising=False)
    monkeypatch.setattr(sys, "argv", ["x", collective, "--min", sizes[0], "--max", sizes[1], "--master", "10.1.0.12"])
    sweep.main()
    # Of the ranks one keeps the store, and every job and step has its own port.
    store = ("10.1.0.12", 24050 if job else 20000, 4, rank == 0, datetime.timedelta(minutes=2))
    assert joined == [(("gloo",), {"store": store, "rank": rank, "world_size": 4})]
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 1.5), ("all_gather", 0.75), ("scatter", 0.75), ("gather", 0.75),
        ("broadcast", 1.0), ("reduce", 1.0), ("sendrecv", 1.0),
    ],
)  # fmt: skip
def test_a_sweep_is_rated_as_nccl_tests_are(
    collective: str, factor: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = swept(monkeypatch, capsys, 0, collective)
    rating = bandwidth.rate("nccl", said, None)
    sizes = [1 << 20, 2 << 20, 4 << 20]
    assert [(row.size, row.count, row.type, row.time_us, row.wrong) for row in rating.rows] == [
        (size, size // 4, "float", 1000.0, 0) for size in sizes
    ]
    assert [row.busbw for row in rating.rows] == pytest.approx([size / 1e6 * factor for size in sizes], abs=0.006)
    assert rating.average == pytest.approx(sum(sizes) / 3e6 * factor, abs=0.001)
    assert (rating.passed, rating.reasons) == (True, [])


def test_of_a_sweep_the_first_rank_alone_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(monkeypatch, capsys, 3, "all_reduce") == ""
    # Too small for a value of four bytes: one is sent. Without Slurm's numbers of job and step there is a port too.
    assert swept(monkeypatch, capsys, 0, "reduce", ("2", "8"), None).splitlines() == [
        "# reduce, gloo, 4 ranks, PyTorch 2.9",
        "#       size        count     type  redop   root      time   algbw   busbw #wrong",
        "           4            1    float    sum     -1    1000.0    0.00    0.00      0",
        "           4            1    float    sum     -1    1000.0    0.00    0.00      0",
        "           8            2    float    sum     -1    1000.0    0.00    0.00      0",
        "# Avg bus bandwidth    : 0.0000",
    ]
    said = swept(monkeypatch, capsys, 0, "all_gather", ("8", "8")).splitlines()
    assert said[2] == "           8            2    float   none     -1    1000.0    0.00    0.00      0"


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("64K", 1 << 16), ("32M", 1 << 25), ("1gb", 1 << 30)])
def test_sizes_of_a_sweep_are_those_of_nccl_tests(text: str, size: int) -> None:
    assert script("gloo_sweep")._bytes(text) == size
    with pytest.raises(SystemExit, match=r"^8T is no size; 8, 64K, 32M or 1G are$"):
        script("gloo_sweep")._bytes("8T")


def test_a_sweep_takes_a_number_of_iterations_and_else_as_many_as_fit() -> None:
    parser = script("gloo_sweep")._options()
    given = ["all_reduce", "--master", "10.1.0.12"]
    assert parser.parse_args(given).iterations is None
    assert parser.parse_args([*given, "--iterations", "3"]).iterations == 3


# Llama's tokens


def test_a_flat_file_of_tokens_has_the_type_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama, opened = script("llama"), []

    def memmap(path: str, dtype: str, mode: str) -> range:
        opened.append((path, dtype, mode))
        return range(5000)

    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(memmap=memmap))  # type: ignore[arg-type]
    file = tmp_path / "tokens.bin"
    file.write_bytes(b"some")
    for more in ((), ("--data-type", "uint32")):
        llama.tokens(llama.parser("x").parse_args(["--out", "x", "--data", str(file), *more]))
    assert opened == [(str(file), kind, "r") for kind in ("uint16", "uint32")]
    file.write_bytes(b"")
    for path, why in (
        (tmp_path, "no such file"),
        # Nothing can be mapped of an empty file.
        (file, "0 tokens, fewer than one sequence of --context has"),
    ):
        with pytest.raises(SystemExit, match=rf"^--data {path}: {why}$"):
            llama.tokens(llama.parser("x").parse_args(["--out", "x", "--data", str(path)]))
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(memmap=lambda *_, **__: range(8)))  # type: ignore[arg-type]
    file.write_bytes(b"some")
    enough, few = (["--out", "x", "--data", str(file), "--context", str(context)] for context in (8, 9))
    assert llama.tokens(llama.parser("x").parse_args(enough)) == range(8)
    with pytest.raises(SystemExit, match="8 tokens, fewer than one sequence"):
        llama.tokens(llama.parser("x").parse_args(few))
    assert llama.tokens(llama.parser("x").parse_args(["--out", "x"])) is None


def test_the_learning_rate_rises_and_falls_along_a_cosine_to_a_tenth() -> None:
    llama = script("llama")
    options = SimpleNamespace(rate=1.0, warmup=10, steps=110)
    assert [round(llama.rate(options, step), 4) for step in (0, 9, 10, 60, 110, 200)] == [0.1, 1, 1, 0.55, 0.1, 0.1]


# huggingface.co: config.json of Llama-3.2-1B, Llama-2-7b-hf, Meta-Llama-3-8B, Llama-2-13b-hf and Meta-Llama-3-70B.
LLAMAS = {
    "1b": {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
           "num_key_value_heads": 8},
    "7b": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
           "num_key_value_heads": 32},
    "8b": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
           "num_key_value_heads": 8},
    "13b": {"num_hidden_layers": 40, "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40,
            "num_key_value_heads": 40},
    "70b": {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
            "num_key_value_heads": 8},
}  # fmt: skip


def test_a_llama_has_its_published_size() -> None:
    llama = script("llama")
    assert sorted(LLAMAS) == sorted(llama.SIZES)
    for size, published in LLAMAS.items():
        given = llama.parser("x").parse_args(["--out", "x", "--model", size, "--context", "8", "--vocabulary", "9"])
        rest = {"vocab_size": 9, "max_position_embeddings": 8, "use_cache": False}
        assert llama.configuration(given, dict) == {**published, **rest}


@pytest.mark.parametrize("trainer", ["llama.place", "nanogpt._place"])
def test_a_ranks_place_is_torchruns_or_slurms(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, function = trainer.partition(".")
    place = getattr(script(name), function)
    torchrun, slurm = ("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
    monkeypatch.setattr(os, "environ", dict(zip(slurm, ("9", "16", "1"), strict=True)))
    assert place() == (9, 16, 1)
    if name == "llama":
        assert [os.environ[name] for name in torchrun] == ["9", "16", "1"], "PyTorch reads these"
    os.environ.update(zip(torchrun, ("3", "8", "2"), strict=True))
    assert place() == (3, 8, 2)
    if name == "nanogpt":
        del os.environ["LOCAL_RANK"]
        assert place() == (9, 16, 1)
        del os.environ["SLURM_LOCALID"]
        assert place() == (0, 1, 0)

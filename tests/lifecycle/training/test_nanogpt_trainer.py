"""How a rank of the small GPT's training goes: joins the others, trains, saves, tells, and stops when it is asked to.

What it computes is tested where PyTorch is (tests/jobs/test_trainers.py).
"""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
from __future__ import annotations

import datetime
import hashlib
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.lifecycle.training.test_training import script


@pytest.fixture(scope="module")
def nanogpt() -> ModuleType:
    return script("nanogpt")


def only(*wanted: Any, answer: Any) -> Callable[..., Any]:
    """What is called like this and in no other way."""

    def stand_in(*given: Any) -> Any:
        assert given == wanted
        return answer

    return stand_in


class Rank:
    """A rank whose steps take a tenth of a second each and lose a tenth of the loss; what it did, in its order."""

    def __init__(self, nanogpt: ModuleType, patch: pytest.MonkeyPatch, rank: int, world: int, device: str) -> None:
        self.did: list[Any] = []
        self.start, self.stop_at = 0, 99
        self.history: list[Any] = []
        whole = SimpleNamespace(parameters=lambda: "all parameters")
        model: Any = SimpleNamespace(
            to=lambda where: only(device, answer=model)(where),
            parameters=lambda: [SimpleNamespace(numel=lambda: 600_000_000), SimpleNamespace(numel=lambda: 34_565_100)],
        )
        torch = SimpleNamespace(
            __version__="2.9",
            optim=SimpleNamespace(AdamW=self.adamw),
            distributed=SimpleNamespace(barrier=self.note("barrier")),
            set_num_threads=self.note("threads"),
            manual_seed=self.note("seed"),
            set_float32_matmul_precision=self.note("precision"),
        )
        self.torch, self.model, self.whole, self.world, self.device = torch, model, whole, world, device
        for name, stand_in in {
            "Asked": only(answer="asked"),
            "Report": only(rank, answer=self),
            "_torch": only(answer=torch),
            "_place": only(answer=(rank, world, 3)),
            "_join": only(torch, rank, world, answer="gloo"),
            "_device": only(torch, 3, answer=device),
            "_encode": lambda _, text, symbols: (text, symbols),
            "build": self.build,
            "_distributed": only(torch, model, device, world, answer=whole),
            "_resume": self.resume,
            "_step": self.train,
            "_agreed": self.agreed,
            "_save": self.save,
            "_result": lambda *given: self.did.append(("result", *given)),
            "end": self.note("end"),
        }.items():
            patch.setattr(nanogpt, name, stand_in)

    def note(self, name: str) -> Callable[..., None]:
        return lambda *given: self.did.append((name, *given))

    def build(self, torch: Any, symbols: int, options: Any) -> Any:
        self.options, self.symbols = options, symbols
        return self.model

    def adamw(self, parameters: str, **given: object) -> str:
        self.optimizer = {"parameters": parameters, **given}
        return "optimizer"

    def resume(self, torch: Any, out: Any, model: Any, optimizer: str, device: str) -> tuple[int, list[Any]]:
        assert (model, optimizer, device) == (self.model, "optimizer", self.device)
        return self.start, self.history

    def train(self, torch: Any, model: Any, optimizer: str, data: Any, options: Any, step: int, *rest: Any) -> float:
        assert (torch, model, optimizer, rest[-1]) == (self.torch, self.whole, "optimizer", self)
        self.data, self.given = data, rest[:-1]
        return 4 - step / 10

    def agreed(self, torch: Any, asked: str, world: int, device: str) -> bool:
        assert (torch, asked, world, device) == (self.torch, "asked", self.world, self.device)
        self.did.append("agreed")
        return self.last == self.stop_at

    def save(self, torch: Any, out: Any, model: Any, optimizer: str, step: int, history: list[Any]) -> None:
        assert (torch, model, optimizer) == (self.torch, self.model, "optimizer")
        self.did.append(("save", str(out), step, list(history)))

    # As a report.
    def begin(self) -> None:
        self.did.append("begin")

    def step(self, step: int, tokens: int, loss: float) -> float:
        self.last = step
        self.did.append((step, tokens, loss))
        return (1 + step) / 10

    def checkpoint(self) -> Rank:
        return self

    def __enter__(self) -> None:
        self.did.append("saving")

    def __exit__(self, *_: object) -> None:
        self.did.append("saved")


Make = Callable[..., Rank]


@pytest.fixture
def rank_of(nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")

    def make(*words: str, rank: int = 0, world: int = 1, device: str = "cpu") -> Rank:
        given = ["--out", "o", "--steps", "5", "--log-every", "2", "--save-every", "3", "--batch", "2", "--block", "8"]
        monkeypatch.setattr(sys, "argv", ["nanogpt.py", *given, *words])
        return Rank(nanogpt, monkeypatch, rank, world, device)

    return make


def test_a_rank_trains_to_the_last_step_logs_saves_and_tells(
    rank_of: Make, nanogpt: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = rank_of("--rate", "0.002", "--seed", "9", world=4)
    nanogpt.main()
    # github.com/karpathy/nanoGPT, train.py.
    assert rank.optimizer == {"parameters": "all parameters", "lr": 0.002, "betas": (0.9, 0.95), "weight_decay": 0.1}
    assert os.environ["OMP_NUM_THREADS"] == "6"
    text, symbols = rank.data
    assert (len(text) // 1000, symbols, rank.symbols) == (400, sorted(set(text)), len(symbols))
    assert rank.given == (0, 4, "cpu")

    def trained(step: int) -> list[Any]:
        # Of four ranks, two sequences of eight each.
        return ["begin", (step, 64, 4 - step / 10), *(["agreed"] if step % 2 == 0 else [])]

    def saved(step: int, *logged: int) -> list[Any]:
        return ["saving", ("save", "o", step, [(one, 4 - one / 10) for one in logged]), "saved"]

    times = [pytest.approx(100 * number) for number in range(1, 7)]
    history = [(step, 4 - step / 10) for step in (0, 2, 4, 5)]
    assert rank.did == [
        ("threads", 6), ("seed", 9), *trained(0), *trained(1), *trained(2), *trained(3), *saved(3, 0, 2),
        *trained(4), *trained(5), *saved(5, 0, 2, 4, 5),
        ("result", nanogpt.Path("o"), rank.options, history, times, "gloo", 4), ("barrier",), ("end", 0),
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        f"model 634.57M parameters, {len(symbols)} characters, 4 ranks, gloo, PyTorch 2.9",
        "started from nothing",
        # The mean of as many steps as are between two lines.
        "iter 0: loss 4.0000, 100 ms",
        "iter 2: loss 3.8000, 250 ms",
        "checkpoint at iter 3",
        "iter 4: loss 3.6000, 450 ms",
        "iter 5: loss 3.5000, 550 ms",
        "checkpoint at iter 5",
    ]


def test_a_rank_that_goes_on_saves_nothing_at_once_and_stops_at_a_step_where_it_is_asked_to(
    rank_of: Make, nanogpt: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rank = rank_of("--threads", "2", device="cuda:3")
    rank.start, rank.history, rank.stop_at = 3, [(0, 4.0), (2, 3.8)], 4
    nanogpt.main()
    assert rank.did[:3] == [("threads", 2), ("precision", "high"), ("seed", 1337)]
    assert [one for one in rank.did if one[0] in {"save", "result", "barrier", "end", 3, 4}] == [
        (3, 16, 3.7),
        (4, 16, 3.6),
        ("save", "o", 4, [(0, 4.0), (2, 3.8), (4, 3.6)]),
        ("end", 0),
    ]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "resumed after iter 2",
        "iter 4: loss 3.6000, 450 ms",
        "checkpoint at iter 4",
    ]


def test_a_rank_that_is_not_the_first_trains_and_says_nothing(
    rank_of: Make, nanogpt: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK")
    rank = rank_of(rank=1, world=2)
    nanogpt.main()
    assert [one for one in rank.did if isinstance(one, tuple)] == [
        ("threads", 1), ("seed", 1337), *((step, 32, 4 - step / 10) for step in range(6)), ("barrier",), ("end", 0),
    ]  # fmt: skip
    assert capsys.readouterr().out == ""


def test_a_text_of_ones_own_is_read_whole(rank_of: Make, nanogpt: ModuleType, tmp_path: Any) -> None:
    (tmp_path / "book").write_text("größer")
    rank = rank_of("--data", str(tmp_path / "book"))
    nanogpt.main()
    assert rank.data == ("größer", sorted(set("größer")))


def test_symbols_are_numbered_in_their_order(nanogpt: ModuleType) -> None:
    torch = SimpleNamespace(tensor=lambda numbers, dtype: (numbers, dtype), long="long")
    assert nanogpt._encode(torch, "hello", ["e", "h", "l", "o"]) == ([1, 0, 2, 2, 3], "long")


def test_the_text_that_is_made_up_is_the_same_whenever_a_job_goes_on(nanogpt: ModuleType) -> None:
    """Of any Python too: what a seed gives by ``choice`` has not changed since 3.2."""
    text = nanogpt.make_text(1337, 50_000)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "fb6c8b43a21c1427"
    assert text[:50_000] == nanogpt.make_text(1337, 100_000)[:50_000]
    assert 50_000 <= len(text) < 50_200


# How ranks find each other


class Store:
    def __init__(self, *given: Any, timeout: datetime.timedelta) -> None:
        self.given, self.values = (*given, timeout), dict[str, str]()

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()


@pytest.mark.parametrize(
    ("gpus", "transport", "other", "backend"),
    [
        (True, None, "nccl", "nccl"),
        (True, "efa-rdma", "nccl", "nccl"),
        # One rank that has none makes all of them use sockets: with two backends they would wait for ever.
        (True, "efa-rdma", "gloo", "gloo"),
        (True, "tcp", "gloo", "gloo"),
        (False, "efa-rdma", "gloo", "gloo"),
    ],
)
@pytest.mark.parametrize("attempt", [None, "2"])
def test_ranks_take_the_fastest_backend_that_all_of_them_have(
    nanogpt: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    gpus: bool,
    transport: str | None,
    other: str,
    backend: str,
    attempt: str | None,
) -> None:
    stores, joined, named, five = [], [], [], datetime.timedelta(minutes=5)

    def store(*given: Any, **more: Any) -> Store:
        stores.append(Store(*given, **more))
        stores[0].values["wish/1"] = other
        return stores[0]

    def prefixed(name: str, one: Store) -> Store:
        named.append(name)
        return one

    made = SimpleNamespace(
        TCPStore=store, PrefixStore=prefixed, init_process_group=lambda *given, **more: joined.append((given, more))
    )
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: gpus), distributed=made)
    told = {"HYPERPOD_TRANSPORT": transport, "MASTER_ADDR": "10.1.0.12", "MASTER_PORT": "1234"}
    if attempt:
        told |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": attempt}
    monkeypatch.setattr(os, "environ", {name: value for name, value in told.items() if value})
    assert nanogpt._join(torch, 0, 2) == backend
    # torchrun's own store, which lives through all attempts, has one rank's wishes by attempt.
    assert stores[0].given == ("10.1.0.12", 1234, 2, not attempt, five)
    assert named == ([f"attempt/{attempt}"] if attempt else [])
    assert stores[0].values["wish/0"] == ("nccl" if gpus and transport != "tcp" else "gloo")
    assert joined == [((backend,), {"store": stores[0], "rank": 0, "world_size": 2, "timeout": five})]


def test_a_rank_alone_joins_nobody_and_without_an_address_it_is_this_machine(
    nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"TORCHELASTIC_USE_AGENT_STORE": "True"})
    for gpus, backend in ((True, "nccl"), (False, "gloo")):
        torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda gpus=gpus: gpus))
        assert nanogpt._join(torch, 0, 1) == backend
    asked: list[Any] = []

    def refuse(*given: Any, **_: Any) -> None:
        asked.append(given)
        raise ConnectionError

    monkeypatch.setattr(nanogpt, "await_port", lambda *given: asked.append(given))
    torch = SimpleNamespace(cuda=torch.cuda, distributed=SimpleNamespace(TCPStore=refuse))
    with pytest.raises(ConnectionError):
        nanogpt._join(torch, 3, 8)
    assert asked == [("127.0.0.1", 29500, 300.0), ("127.0.0.1", 29500, 8, False)]


def test_a_port_is_waited_for_as_long_as_said(nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = [0.0], []

    def connect(where: tuple[str, int], timeout: float) -> None:
        tried.append((where, timeout))
        raise ConnectionRefusedError

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(nanogpt, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(nanogpt, "socket", SimpleNamespace(create_connection=connect))
    nanogpt.await_port("10.1.0.12", 1234, 0.05)
    assert tried == [(("10.1.0.12", 1234), 5)] * 3
    nanogpt.await_port("10.1.0.12", 1234, 0)
    assert len(tried) == 3


def test_a_python_without_pytorch_is_named(nanogpt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match=rf"^this Python \({sys.executable}\) has no PyTorch: .*torch"):
        nanogpt._torch()


def test_ranks_stop_together_where_any_of_them_was_asked_to(nanogpt: ModuleType) -> None:
    assert [nanogpt._agreed(None, asked, 1, "cpu") for asked in (True, False)] == [True, False]
    for asked, others, stop in ((True, 0.0, True), (False, 1.0, True), (False, 0.0, False)):
        sent: list[Any] = []

        def tensor(values: list[float], device: str, sent: list[Any] = sent, others: float = others) -> Any:
            sent.append((*values, device))
            return SimpleNamespace(item=lambda: values[0] + others)

        torch = SimpleNamespace(tensor=tensor, distributed=SimpleNamespace(all_reduce=sent.append))
        assert nanogpt._agreed(torch, asked, 8, "cuda:0") is stop
        assert sent[0] == (1.0 if asked else 0.0, "cuda:0")
        assert len(sent) == 2


def test_one_ranks_model_is_its_own_and_several_share_their_gradients(nanogpt: ModuleType) -> None:
    shared = SimpleNamespace(DistributedDataParallel=lambda model, device_ids: (model, device_ids))
    torch = SimpleNamespace(nn=SimpleNamespace(parallel=shared))
    assert nanogpt._distributed(torch, "model", "cuda:3", 1) == "model"
    assert nanogpt._distributed(torch, "model", "cuda:3", 2) == ("model", ["cuda:3"])
    assert nanogpt._distributed(torch, "model", "cpu", 2) == ("model", None)

"""How a rank of the small GPT's training goes: joins the others, trains, saves, tells, and stops when it is asked to.

What it computes is tested where PyTorch is (tests/jobs/test_trainers.py).
"""

import datetime
import hashlib
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.lifecycle.training.test_training import script


@pytest.fixture(scope="module")
def nanogpt() -> ModuleType:
    return script("nanogpt")


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

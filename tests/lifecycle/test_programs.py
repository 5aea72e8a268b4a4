"""The programs of the nodes' services: what they say, with which status they end, and who may read what they make."""

import fcntl
import io
import os
import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hyperpod_node import __main__ as on_create
from hyperpod_node.accounting import backup
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.settings import Settings
from hyperpod_node.people import apply as people
from hyperpod_node.slurm import change, node_liveness, requeue

from tests.lifecycle.rig import FakeHost, World


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return World(tmp_path).node("controller")


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    before = os.umask(0o007)
    yield
    os.umask(before)


def masked() -> int:
    """The mask of the process, which asking for changes."""
    now = os.umask(0)
    os.umask(now)
    return now


def refuse(*_: Any) -> str:
    raise StepError("not today")


# Module, its function that does the work, and the program with its words.
PROGRAMS: dict[str, tuple[ModuleType, str, Callable[[], int]]] = {
    "hyperpod-accounting-backup": (backup, "save", backup.main),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_could_not_be_done_is_said_by_name_with_status_1(
    name: str, host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, work, program = PROGRAMS[name]
    monkeypatch.setattr(module, "Host", lambda _: host)
    monkeypatch.setattr(module, work, refuse)
    host.remember()
    assert program() == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{name}: not today\n")


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("accounting.backup", "hyperpod-accounting-backup", ["prepare"]),
        ("accounting.accounts", "hyperpod-slurm-accounts", []),
    ],
)
def test_a_program_ends_with_the_status_of_its_work(
    module: str,
    name: str,
    words: list[str],
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a node where nothing is known yet."""
    monkeypatch.setattr(Settings, "from_environment", lambda: host.settings)
    monkeypatch.setattr(sys, "argv", [name, *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO("{"))
    monkeypatch.delitem(sys.modules, f"hyperpod_node.{module}")
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"hyperpod_node.{module}", run_name="__main__")
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert (out, err[: len(name) + 2]) == ("", f"{name}: ")


def test_a_copy_of_the_accounting_is_for_root_alone_and_beside_what_the_nodes_share(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backup, "Host", lambda _: host)
    host.remember()
    monkeypatch.setattr(backup, "save", lambda found, shared: f"{found is host} {shared} {masked():o}")
    assert backup.main() == 0
    assert capsys.readouterr().out == "hyperpod-accounting-backup: True /fsx/.hyperpod 77\n"


@pytest.mark.parametrize(("module", "seconds"), [(people, 300), (change, 240)])
def test_what_a_stack_sends_is_applied_in_minutes_and_what_is_written_is_for_everybody_to_read(
    module: ModuleType, seconds: float, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, float]] = []

    def apply(found: FakeHost, _: Any) -> Any:
        seen.append((masked(), found.remaining()))
        raise StepError("enough")

    monkeypatch.setattr(module, "Host", lambda _: host)
    monkeypatch.setattr(module, "apply", apply)
    host.remember()
    assert module.main(["--nobody"] if module is people else []) == 1
    assert seen == [(0o022, seconds)]


def test_the_requeue_service_asks_the_other_nodes_at_slurmds_port(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.write("/opt/slurm/etc/slurm.conf", "ClusterName=c\nSlurmdPort=7000\n")
    probed: list[Any] = []
    begun = threading.Event()

    def probe(found: Sequence[str], port: int) -> set[str]:
        probed.append((found, port))
        return set(found)

    monkeypatch.setattr(requeue, "Host", lambda _: host)
    host.remember(lost_after_seconds=7.0)
    monkeypatch.setattr(node_liveness, "probe", probe)

    def forever(look: Callable[[], None], interval: Callable[[float], float], log: Callable[[str], None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            return
        watch: requeue.Watch = look.__self__  # type: ignore[attr-defined]
        assert sorted(watch.others()) == ["10.1.0.11", "10.1.0.12", "10.1.0.13"]
        assert (watch.lost_after, interval(0.1)) == (7.0, requeue.INTERVAL)
        # A look of a second is followed by three without one.
        assert interval(1.0) == 4.0
        assert watch.probe(["10.1.0.12"]) == {"10.1.0.12"}

    monkeypatch.setattr(requeue, "forever", forever)
    requeue.main()
    assert begun.wait(5), "nobody looks at the configuration"
    assert probed == [(["10.1.0.12"], 7000)]
    assert "a node is lost after 7 s without an answer" in "".join(capsys.readouterr())


def test_on_create_runs_once_at_a_time_and_as_root(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = SimpleNamespace(lock=str(tmp_path / "lock"))
    monkeypatch.setattr("hyperpod_node.host.settings.Settings.from_environment", lambda: settings)
    monkeypatch.setattr(on_create, "Host", lambda given: given)
    monkeypatch.setattr(on_create, "boot", lambda given: 40 + 2 * (given is settings) + masked() - 0o022)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert on_create.main() == 1
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert on_create.main() == 42
    with Path(settings.lock).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert on_create.main() == 1
    said = "".join(capsys.readouterr())
    assert "step parameters failed: must run as root" in said
    assert "step parameters failed: on_create is already running on this node" in said

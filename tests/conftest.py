"""What holds for every test."""

import contextlib
import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Neither tests.support nor tests.widths: the process that only hands out the tests need not load what they look at.
from tests.shared import SHARED

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
# The markers that a suite of the Makefile asks for first.
SUITES = ("slow", "root", "kubernetes", "prometheus")


def pytest_configure(config: pytest.Config) -> None:
    """With several processes: a folder for what one of them makes and all of them look at."""
    hands_out = bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")
    if is_fast(config):
        in_memory()
    # While the tests are imported everything stays: looking for garbage would be a third of the time.
    gc.disable()
    if hands_out:
        os.environ[SHARED] = tempfile.mkdtemp(prefix="pytest-shared-")


def is_fast(config: pytest.Config) -> bool:
    """Whether this is the fast suite."""
    return "not slow" in config.option.markexpr


def in_memory() -> None:
    """Put temporary files into memory, where it has room and lets programs run: fast tests make a hundred thousand.

    On a disk they are a tenth of the time. The other suites, which boot hosts and Kubernetes, keep theirs on it.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > ROOM:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


def pytest_unconfigure(config: pytest.Config) -> None:
    """The folder goes with the run. So does the garbage: pytest would look for it five times, for seconds."""
    gc.freeze()
    if not hasattr(config, "workerinput") and (folder := os.environ.pop(SHARED, "")):
        shutil.rmtree(folder)


@cache
def names(path: Path, marker: str) -> bool:
    """Whether a file names a marker."""
    return f"mark.{marker}" in path.read_text()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import for a suite only the files that name its marker: all of them take each process 8 CPU seconds."""
    suite = config.option.markexpr.split(" ", 1)[0]
    return True if suite in SUITES and collection_path.suffix == ".py" and not names(collection_path, suite) else None


class Grouped(LoadScopeScheduling):  # type: ignore[misc]
    """Sends one process all tests of a file that has a group. xdist 3.8 itself does so up to pytest 9.1 only."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return file if names(self.config.rootpath / file, "xdist_group") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Grouped | None:
    """Let ``--dist loadgroup`` do what it says."""
    return Grouped(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a marker that a file has from another one: no suite would run its tests."""
    for marker in item.iter_markers():
        if marker.name in SUITES and not names(item.path, marker.name):
            raise pytest.UsageError(f"{item.path} has tests for {marker.name}, and does not name the marker itself")


def pytest_collection(session: pytest.Session) -> None:
    """Every second process imports the tests from the last to the first: after a checkout, each compiles half of them.

    Otherwise all of them compile the same file at the same time. What cannot be imported, pytest reports afterwards.
    """
    worker = getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"]
    if not is_fast(session.config) or int(worker[2:]) % 2 == 0:
        return
    for path in sorted(TESTS.rglob("test_*.py"), reverse=True):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the tests import stays, and what they make goes with the run: garbage is looked for now and then.

    Never in the fast suite, where that would be a twentieth of the time: a process stays below 1.5 GB all the same.
    """
    gc.freeze()
    if not is_fast(session.config):
        gc.set_threshold(100_000, 20)
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hypothesis looks for garbage when it is first used. It need not look through what earlier tests made."""
    if is_fast(item.config):
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def tables_fit() -> Iterator[None]:
    """Look at every table that a verb or a rehearsal draws in any test: at its lines in terminals of three widths."""
    from tests.widths import watched

    with watched():
        yield

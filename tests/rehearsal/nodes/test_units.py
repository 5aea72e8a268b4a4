"""systemd's unit files as the hosts' process 1 reads them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[3] / "rehearsal/nodes/stubs/units.py"


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("units", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folders = [tmp_path / name for name in ("etc", "run", "lib")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(module, "FOLDERS", tuple(str(folder) for folder in folders))
    monkeypatch.setattr(module, "WANTED", str(tmp_path / "etc/multi-user.target.wants"))
    return module


def write(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_a_drop_in_replaces_a_command(units: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/d.service", "[Service]\nExecStart=/bin/a\nRestart=no\nEnvironment=X=1\n")
    write(tmp_path, "etc/d.service.d/10.conf", "[Service]\nExecStart=\nExecStart=/bin/b $X\nRestart=always\n")
    unit = units.load("d")
    assert unit.all("Service", "ExecStart") == ["/bin/b $X"]
    assert unit.get("Service", "Restart") == "always"
    assert units.command(unit.all("Service", "ExecStart")[0], unit.environment()) == ["/bin/b", "1"]


def test_etc_goes_before_lib(units: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/d.service", "[Service]\nExecStart=/bin/lib\n")
    write(tmp_path, "etc/d.service", "[Service]\nExecStart=/bin/etc\n")
    assert units.load("d.service").all("Service", "ExecStart") == ["/bin/etc"]


def test_masked_and_missing(units: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "etc/d.service").symlink_to("/dev/null")
    assert units.load("d").masked
    assert units.load("nosuch").missing


def test_an_alias_is_its_unit(units: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/ssh.service", "[Service]\nExecStart=/bin/a\n")
    (tmp_path / "etc/sshd.service").symlink_to(tmp_path / "lib/ssh.service")
    assert units.load("sshd").name == "ssh.service"


def test_conditions(units: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/d.service", f"[Unit]\nConditionPathExists={tmp_path}/there\n")
    assert not units.load("d").conditions_met()
    (tmp_path / "there").touch()
    assert units.load("d").conditions_met()
    write(tmp_path, "etc/d.service.d/x.conf", f"[Unit]\nConditionPathExists=!{tmp_path}/there\n")
    assert not units.load("d").conditions_met()


def test_variables_alone_are_split(units: ModuleType) -> None:
    environment = {"OPTIONS": "-a -b", "ONE": "x y"}
    assert units.command("-/bin/d $OPTIONS ${ONE} a$NONE", environment) == ["/bin/d", "-a", "-b", "x y", "a"]


def test_after_is_the_order(units: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/a.service", "[Unit]\nAfter=z.service network.target\n")
    write(tmp_path, "lib/z.service", "[Unit]\n")
    assert units.in_order(["a.service", "z.service"]) == ["z.service", "a.service"]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1min 30s", 90), ("100ms", 0.1), ("infinity", 1e9)])
def test_time_spans(units: ModuleType, text: str, seconds: float) -> None:
    assert units.seconds(text) == pytest.approx(seconds)

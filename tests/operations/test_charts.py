"""``charts`` brings what is pinned, all of it or nothing."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from components.kubernetes.charts import Chart, Dependency, faults, tree_digest
from operations.commands import downloads
from operations.deployment import charts, preflight
from operations.failures import Exit, Failure
from tests.components.kubernetes.test_charts import package


@pytest.fixture
def published(tmp_path: Path) -> tuple[Chart, Path]:
    """A chart in a repository's archive, its dependency, and the folder with both."""
    repository = tmp_path / "repository-1234" / "deploy" / "small"
    (repository / "charts").mkdir(parents=True)
    (repository / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    digest = tree_digest(repository)
    (repository / "charts" / "old.tgz").write_text("an older build")
    folder = tmp_path / "offline"
    folder.mkdir()
    with tarfile.open(folder / "small.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "repository-1234", "repository-1234")
    package(folder / "other-2.0.0.tgz", "other", "2.0.0")
    packaged = hashlib.sha256((folder / "other-2.0.0.tgz").read_bytes()).hexdigest()
    other = Dependency(name="other", version="2.0.0", url="https://localhost:1/other-2.0.0.tgz", sha256=packaged)
    chart = Chart(
        name="small",
        version="1.0.0",
        archive="https://localhost:1/small.tar.gz",
        folder="deploy/small",
        sha256=digest,
        dependencies=(other,),
        left_out=("charts/old.tgz",),
    )
    return chart, folder


def test_brings_the_chart_with_its_dependencies_and_says_what_was_verified(
    published: tuple[Chart, Path], tmp_path: Path
) -> None:
    chart, offline = published
    brought = charts.bring(chart, tmp_path, offline)
    assert faults(chart, tmp_path / "charts" / "small") == []
    assert brought.content == ("small", "other")
    assert [path.name for path in (tmp_path / "charts").iterdir()] == ["small"]


def test_what_is_right_already_is_not_fetched_again(published: tuple[Chart, Path], tmp_path: Path) -> None:
    chart, offline = published
    charts.bring(chart, tmp_path, offline)
    charts.bring(chart, tmp_path, tmp_path / "nowhere")


def test_other_content_is_refused_and_the_existing_chart_stays(published: tuple[Chart, Path], tmp_path: Path) -> None:
    chart, offline = published
    old = tmp_path / "charts" / "small" / "Chart.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("mine")
    package(offline / "other-2.0.0.tgz", "other", "6.6.6")
    with pytest.raises(Failure, match=r"other-2.0.0.tgz is not what was published"):
        charts.bring(chart, tmp_path, offline)
    assert old.read_text() == "mine"
    assert [path.name for path in (tmp_path / "charts").iterdir()] == ["small"]


def test_a_missing_archive_is_named_with_its_address(published: tuple[Chart, Path], tmp_path: Path) -> None:
    chart, offline = published
    (offline / "other-2.0.0.tgz").unlink()
    with pytest.raises(Failure) as failed:
        charts.bring(chart, tmp_path, offline)
    assert "https://localhost:1/other-2.0.0.tgz" in failed.value.hint


def test_without_a_network_it_says_what_to_fetch(published: tuple[Chart, Path], tmp_path: Path) -> None:
    with pytest.raises(Failure) as failed:
        charts.bring(published[0], tmp_path)
    assert failed.value.code == Exit.CANNOT_KNOW
    assert "--from" in failed.value.hint


def test_json_is_for_programs(
    published: tuple[Chart, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chart, offline = published
    monkeypatch.setattr(charts, "ROOT", tmp_path)
    monkeypatch.setattr(downloads, "HYPERPOD", chart)
    monkeypatch.setattr(downloads, "KUEUE", chart)
    downloads.charts_command(offline, True)
    assert json.loads(capsys.readouterr().out)[0]["chart"] == "small"


def test_other_content_in_the_folder_is_replaced_with_the_pinned_chart(
    published: tuple[Chart, Path], tmp_path: Path
) -> None:
    chart, offline = published
    old = tmp_path / "charts" / "small" / "templates" / "old.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("mine")
    charts.bring(chart, tmp_path, offline)
    assert faults(chart, tmp_path / "charts" / "small") == []
    assert not old.exists()


@pytest.mark.parametrize("bad", ["escapes", "is cut", "is empty"])
def test_an_archive_that_is_none_or_leaves_its_folder_is_refused(
    bad: str, published: tuple[Chart, Path], tmp_path: Path
) -> None:
    chart, offline = published
    archive = offline / "small.tar.gz"
    if bad == "is cut":
        archive.write_bytes(archive.read_bytes()[:60])
    else:
        with tarfile.open(archive, "w:gz") as package:
            if bad == "escapes":
                package.add(offline / "other-2.0.0.tgz", "../../../escaped")
    with pytest.raises(Failure, match=r"small\.tar\.gz (is not an archive|has no folder)"):
        charts.bring(chart, tmp_path, offline)
    assert not list(tmp_path.rglob("escaped"))


def test_no_chart_is_downloaded_where_a_stand_in_may_play_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []
    monkeypatch.setattr(charts, "bring", lambda chart: brought.append(chart.name))
    monkeypatch.setattr(preflight, "faults", lambda chart, path: ["it is not there"])
    monkeypatch.setenv("HYPERPOD_CHARTS", "unverified")
    preflight.bring_charts()
    assert brought == []
    monkeypatch.delenv("HYPERPOD_CHARTS")
    preflight.bring_charts()
    assert len(brought) == 2

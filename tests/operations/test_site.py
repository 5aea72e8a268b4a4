"""The documentation as a site: every page has a place, every link leads somewhere, nothing comes from another host."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT


def pages(nav: list[Any]) -> Iterator[str]:
    """The pages of a navigation (Zensical, "Navigation": pages, and titles with a page or more of it)."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from pages(below if isinstance(below, list) else [below])


def test_the_navigation_has_every_page_once() -> None:
    found = list(pages(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    docs = ROOT / "docs"
    there = (path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.parent.name != "pictures")
    assert sorted(found) == sorted(there)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does, in a folder with a copy of its sources."""
    program = str(Path(sys.executable).with_name("zensical"))
    return subprocess.run(
        [program, "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_the_site_needs_no_other_host_and_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    good = build(tmp_path)
    assert good.returncode == 0, good.stderr + good.stdout
    site = tmp_path / "site"
    made = {path.stem for path in site.glob("*.html")}
    assert made == {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} | {"index", "404"}
    assert list(site.rglob("*.pyc")) == []
    index = (site / "search.js").read_text()  # for pages that are opened from a folder
    for symptom in ("stuck in Creating", "Add a user", "Permission denied on /fsx", "fsx.storageGiB"):
        assert symptom in index, f"search does not find {symptom}"
    for page in site.glob("*.html"):
        text = page.read_text()
        # What a browser fetches by itself: scripts, pictures, styles and fonts.
        fetched = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?([^\s\">]+)", text)
        fetched += re.findall(r"<link[^>]* href=\"?([^\s\">]+)", text)
        fetched += re.findall(r"<source[^>]* srcset=\"?([^\s\">]+)", text)
        assert [one for one in fetched if re.match(r"(https?:)?//", one)] == [], page.name
        assert any(one.endswith("assets/iframe-worker.js") for one in fetched), "search from a folder needs it"
        assert [
            one for one in fetched if one.endswith((".png", ".svg")) and not (site / one.lstrip("/")).is_file()
        ] == []
        assert page.stem != "index" or "pictures/report-phone.png" in fetched, "a phone gets a picture that it can show"
    (tmp_path / "docs" / "slurm.md").write_text("# Slurm\n\n[gone](gone.md)\n")
    bad = build(tmp_path)
    assert bad.returncode != 0
    assert "page does not exist" in bad.stderr + bad.stdout
    (tmp_path / "docs" / "slurm.md").write_text("# Slurm\n\n[gone](design.md#gone)\n")
    assert build(tmp_path).returncode != 0

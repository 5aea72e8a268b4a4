"""Renew the pictures of the report in ``docs/pictures``.

Needs Chromium. Look at the pictures before you commit them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from operations.failures import Exit, Failure, cannot_know

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_DARK = "--blink-settings=preferredColorScheme=0"
_COLOURS = 96
# What the pages are of: the words of `hyperpod rehearse`, and its exit code.
STORIES = {
    "good": (["eks-gpu"], 0),
    "failed": (["dev", "--fail", "hyperpod-cluster=controller-capacity"], 1),
    "changed": (["dev", "--then", 'observability={"prometheus":"create"}', "--then", 'fsx={"storageGiB":4800}'], 0),
}


def main() -> int:
    """Renew the pictures. Returns the exit code: 3 without Chromium."""
    try:
        with TemporaryDirectory() as folder:
            _renew(Path(folder))
            return Exit.GOOD
    except Failure as failure:
        print(failure.message, file=sys.stderr)
        return failure.code


def _renew(folder: Path) -> None:
    browser = _browser(folder)
    pages = {story: _page(folder / f"{story}.html", *of) for story, of in STORIES.items()}
    _shoot(browser, pages["good"], "report", 1280, 800)
    _shoot([*browser, _DARK], pages["failed"], "report-failed-dark", 1280, 800)
    _shoot(browser, pages["changed"], "report-changes", 1280, 1150)
    _shoot(browser, _framed(folder, "good"), "report-phone", 390, 844)


def _browser(folder: Path) -> list[str]:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise cannot_know("the pictures need Chromium: apt-get install chromium")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
    return [program, *words, f"--user-data-dir={folder / 'browser'}"]


def _page(page: Path, words: list[str], code: int) -> Path:
    command = [sys.executable, "hyperpod.py", "rehearse", *words, "--report", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return page


def _framed(folder: Path, story: str) -> Path:
    """A page in a frame of a phone's width, as Chromium's own window cannot be so narrow."""
    frame = folder / "framed.html"
    style = "border: 0; width: 390px; height: 844px"
    frame.write_text(f"<body style='margin: 0'><iframe style='{style}' src='{story}.html'></iframe></body>")
    return frame


def _shoot(browser: list[str], page: Path, name: str, width: int, height: int) -> None:
    """A picture of so many pixels in docs/pictures."""
    raw = page.with_name(f"{name}.png")
    subprocess.run(
        [*browser, f"--window-size={width},{height}", f"--screenshot={raw}", page.as_uri()],
        check=True,
        capture_output=True,
    )
    with Image.open(raw) as picture:
        _keep(picture.crop((0, 0, width, height)), name)


def _keep(picture: Image.Image, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    picture.convert("RGB").quantize(_COLOURS).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    raise SystemExit(main())

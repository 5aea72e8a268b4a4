"""axe-core on a page: in happy-dom, a browser that is a library, for all but colours; in Chromium for these as well.

Installed from npm as ``package-lock.json`` has them, by hash, once, in ``~/.cache/hyperpod-tools``.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from operations.failures import cannot_know

_HERE = Path(__file__).parent
_LOCK = ("package.json", "package-lock.json")
_PATIENCE = 120
# What the copy of a page says in Chromium: the findings, in an element that dump-dom prints with the rest.
_SCRIPT = """<pre id="axe-found">nothing yet</pre><script>%s</script><script>
axe.run("main").then(({violations}) => {
  const found = violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html}`));
  document.getElementById("axe-found").textContent = JSON.stringify(found);
});
</script></body>"""


class Judged(NamedTuple):
    """What is wrong with a page, the rules that it follows, and what the keys do in its first chart.

    ``pressed``: a key, the name that then has the focus, whether it is open, and how many tab stops the chart has.
    """

    found: list[str]
    passed: list[str]
    pressed: list[list[Any]]


def modules() -> Path:
    """The folder with axe-core and happy-dom, installed if it is not there. Raises Failure where that cannot be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        raise cannot_know("axe-core needs node and npm", "install Node.js 20 or newer")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hyperpod-tools"
    digest = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _LOCK)).hexdigest()[:12]
    folder = cache / f"axe-{digest}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _LOCK:
            shutil.copy(_HERE / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE)
        if done.returncode:
            raise cannot_know("axe-core could not be installed", done.stderr.strip().splitlines()[-1])
        (folder / "ready").touch()
    return folder / "node_modules"


def findings(*pages: Path) -> list[Judged]:
    """What axe-core finds in each page, but for colours. Raises Failure without npm."""
    command = ["node", str(_HERE / "axe.cjs"), str(modules()), *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    return [Judged(**one) for one in json.loads(done.stdout)]


def findings_in_chromium(page: Path, chromium: Sequence[str]) -> list[str]:
    """What axe-core finds in a page in Chromium, started with these words: contrast as well. Raises Failure."""
    script = _SCRIPT % (modules() / "axe-core" / "axe.min.js").read_text()
    with TemporaryDirectory() as folder:
        copy = Path(folder, "page.html")
        copy.write_text(page.read_text().replace("</body>", script))
        words = [*chromium, "--virtual-time-budget=60000", "--dump-dom", copy.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    said = re.search(r'<pre id="axe-found">(.*?)</pre>', done.stdout, re.DOTALL)
    if not said or said[1] == "nothing yet":
        raise cannot_know("axe-core did not end in Chromium")
    return [str(one) for one in json.loads(html.unescape(said[1]))]

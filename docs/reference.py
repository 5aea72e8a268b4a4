"""Writes what other files say into two pages: ``python -m docs.reference``.

docs/configuration.md gets the keys of Pulumi.yaml and the model, docs/troubleshooting.md the failures of stack/advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.config.keys import Key, keys
from components.documents import load
from stack import advice

ROOT = Path(__file__).parents[1]
KEYS, FAILURES = ROOT / "docs" / "configuration.md", ROOT / "docs" / "troubleshooting.md"
BEGIN = "<!-- From here on `make docs-reference` writes this page, from Pulumi.yaml and components/config/model.py. -->"
MADE = "<!-- From here on `make docs-reference` writes this page, from stack/known/. -->"
# Who reports a failure, as advice.ORIGINS names them, in the order in which people meet them.
_ORIGINS = {
    "aws": "AWS and HyperPod",
    "pulumi": "Pulumi",
    "kubernetes": "Kubernetes, Helm and kubectl",
    "slurm": "Slurm and containers",
    "training": "PyTorch, NCCL, EFA, CUDA and Neuron",
    "project": "This project",
}
_HEAD = "| Key | Values | Default | Meaning | A change in a deployed stack |\n|---|---|---|---|---|"


def found() -> tuple[Key, ...]:
    """Every key."""
    return keys(load((ROOT / "Pulumi.yaml").read_text())["config"])


def reference() -> str:
    """The tables: one for the keys, and one for each key that has keys of its own."""
    holders = [holder for key in found() for holder in (key, *key.below()) if holder.parts]
    parts = ["## Keys", _table(found())]
    for holder in holders:
        parts += [f"## {holder.path}", _table(holder.parts)]
    return "\n\n".join(parts) + "\n"


def failures() -> str:
    """A section for each failure, under who reports it. The heading has people's words, the anchor is its code."""
    parts = []
    for origin, heading in _ORIGINS.items():
        parts.append(f"## {heading}")
        parts += [_failure(one) for one in advice.of(origin)]
    return "\n\n".join(parts) + "\n"


def _failure(one: advice.Advice) -> str:
    step = one.step.format(stack="STACK")
    does = f"    {step}" if step.startswith("hyperpod ") else f"**Next**: {step}."
    return (
        f'<a id="{one.code.lower()}"></a>\n\n### {one.title}\n\n`{one.code}`, in a message as\n\n'
        f"    {one.seen}\n\n{one.why}\n\n{does}"
    )


def pages() -> dict[Path, str]:
    """Each page as it should be: what people have written on top, and what is made."""
    return {
        KEYS: KEYS.read_text().split(BEGIN)[0] + f"{BEGIN}\n\n{reference()}",
        FAILURES: FAILURES.read_text().split(MADE)[0] + f"{MADE}\n\n{failures()}",
    }


def _table(rows: Sequence[Key]) -> str:
    return "\n".join([_HEAD, *map(_row, rows)])


def _row(key: Key) -> str:
    cells = [f"`{key.name}`", key.values or "see below", key.default, key.meaning, key.change]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)

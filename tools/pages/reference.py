"""Writes what other files say into pages: ``python -m tools.pages.reference``.

docs/keys/ gets the keys of Pulumi.yaml and the model, docs/troubleshooting.md the failures of operations/failures, and
docs/slurm-image.md the steps of a boot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.common.documents import load
from components.config.keys import Key, keys
from operations.failures import advice

ROOT = Path(__file__).parents[2]
KEYS, FAILURES = ROOT / "docs" / "keys", ROOT / "docs" / "troubleshooting.md"
BEGIN = "<!-- `make docs-reference` writes this page, from Pulumi.yaml and components/config/model.py. -->"
_PAGE = re.compile(r"docs/([\w-]+\.\w+)")
# The page of the keys that are not part of another one.
TOP = "README.md"
STEPS = ROOT / "docs" / "slurm-image.md"
STEPS_MADE = "<!-- From here on `make docs-reference` writes this page, from lifecycle/hyperpod_node/boot/steps.py. -->"
MADE = "<!-- From here on `make docs-reference` writes this page, from operations/failures/known/. -->"
# Who reports a failure, as advice.ORIGINS names them, in the order in which people meet them.
_ORIGINS = {
    "aws": "AWS and HyperPod",
    "pulumi": "Pulumi",
    "kubernetes": "Kubernetes, Helm and kubectl",
    "slurm": "Slurm and containers",
    "training": "NCCL, EFA, CUDA, Neuron and what jobs report of nodes",
    "frameworks": "PyTorch, DeepSpeed, Megatron, Hugging Face, vLLM and Ray",
    "project": "This project",
}


def found() -> tuple[Key, ...]:
    """Every key."""
    return keys(load((ROOT / "Pulumi.yaml").read_text())["config"])


def key_pages() -> dict[str, str]:
    """A page for the keys of a stack, and one for each of them that holds others, by file name."""
    pages = {TOP: _page("Keys of a stack", found())}
    for top in (key for key in found() if key.parts):
        pages[f"{top.name}.md"] = _page(top.path, (*top.below(),), top.meaning)
    return pages


def _page(title: str, of: Sequence[Key], *intro: str) -> str:
    return "\n\n".join([f"# {title}", BEGIN, *map(_linked, intro), *map(_entry, of)]) + "\n"


def _entry(key: Key) -> str:
    """A key under a heading of its own: search finds it, and a phone shows its meaning without scrolling sideways."""
    default = {"": "", "required": "none, it is required"}.get(key.default, f"`{key.default}`")
    facts = {"Values": key.values, "Default": default, "A change": key.change}
    listed = "\n".join(f"- {name}: {fact}" for name, fact in facts.items() if fact)
    has_page = key.parts and "." not in key.path
    more = f"Its keys: [{key.name}]({key.name}.md)." if has_page else ""
    return "\n\n".join(part for part in (f"## `{key.path}`", _linked(key.meaning), listed, more) if part)


def _linked(meaning: str) -> str:
    """A text of the terminal whose files of docs/ are links."""
    return _PAGE.sub(r"[\g<0>](../\1)", meaning)


def failures() -> str:
    """A section for each failure, under who reports it. The heading has people's words, the anchor is its code."""
    parts = []
    for origin, heading in _ORIGINS.items():
        parts.append(f"## {heading}")
        parts += [_failure(one) for one in advice.of(origin)]
    return "\n\n".join(parts) + "\n"


def _failure(one: advice.Advice) -> str:
    lines = [
        f'### <a id="{one.code.lower()}"></a>{one.title}',
        f"`{one.code}`. {_literal(one.why)}",
        f"**Next**: {_step(one.step.format(stack='STACK'))}.",
    ]
    # The heading is often the message itself, or most of its words.
    title, words = one.title.lower(), one.seen.lower().split()
    if title not in one.seen.lower() and sum(word in title for word in words) < len(words) / 2:
        lines.append(f"Seen in: `{one.seen}`")
    return "\n".join(lines)


def _step(step: str) -> str:
    command, comment, told = step.partition("    # ")
    said = f"`{command}`" if command.startswith("hyperpod ") else _literal(command)
    return f"{said}: {_literal(told)}" if comment else said


def _literal(text: str) -> str:
    """A text of the terminal whose brackets are no links of Markdown; what stands between backticks stays as it is."""
    code = re.compile(r"(`[^`]*`)")
    return "".join(part if code.match(part) else part.replace("[", r"\[") for part in code.split(text))


def boot_steps() -> str:
    """What each step of a Slurm node's boot does, by who sets Slurm up."""
    # Found once components have been imported.
    from hyperpod_node.boot import steps

    rows = [
        f"| `{step.name}` | {step.modes['scripts']} | {_by_image(step.modes)} |"
        for step in sorted(steps.ALL, key=lambda one: one.name)
    ]
    return "\n".join(["| Step | `setup: scripts` | `setup: image` |", "|---|---|---|", *rows]) + "\n"


def _by_image(modes: Mapping[str, str]) -> str:
    same = modes["scripts"] == modes.get("image")
    return "the same" if same else modes.get("image", "no such step: the image does it, or its key is refused")


def pages() -> dict[Path, str]:
    """Each page as it should be: what people have written on top, and what is made."""
    return {
        **{KEYS / name: text for name, text in key_pages().items()},
        STEPS: STEPS.read_text().split(STEPS_MADE)[0] + f"{STEPS_MADE}\n\n{boot_steps()}",
        FAILURES: FAILURES.read_text().split(MADE)[0] + f"{MADE}\n\n{failures()}",
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)

"""Holds the English of pages and of YAML texts to tools/prose.yaml, by proselint: ``python -m tools.prose``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from proselint import checks
from proselint.registry.checks import Check, CheckResult
from proselint.registry.checks.types import PreferredFormsSimple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```.*?^```|^    .*?$|<!--.*?-->|<[^>\n]*>|^\[\w+\]:.*?$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`|https?://[^\s)]+")
_TARGET = re.compile(r"(?<=\])\([^)]*\)")
# A sentence ends at its mark, and with its paragraph, its cell of a table or its item of a list.
_END = re.compile(r"[.!?;][\"')*_]*\s|:\s+(?=[A-Z])|\n\s*\n|\n(?=\s*(?:[*-] |\d+\. |#|\|))|\|")
_WORD = re.compile(r"\w[\w'.:/%-]*")


@dataclass(frozen=True)
class Rules:
    """The contents of tools/prose.yaml."""

    proselint: Sequence[str]
    longest_sentence: int
    banned: Mapping[str, str]
    bare: Sequence[str]
    pages: Sequence[str]
    texts: Mapping[str, Sequence[str]]

    def checks(self) -> list[Check]:
        """proselint's own checks that the rules name, and the project's in the same form."""
        known = [check for check in checks.__register__ if check.path.split(".")[0] in self.proselint]
        banned = PreferredFormsSimple(dict(self.banned))
        return [
            *known,
            Check(banned, path="banned", message="'{1}': write {0}."),
            Check(self._sentences, path="sentence"),
        ]

    def _sentences(self, text: str, check: Check) -> Iterator[CheckResult]:
        """Sentences that are too long, or begin with a relative pronoun that has no noun."""
        start = 0
        for end in (*(match.end() for match in _END.finditer(text)), len(text)):
            words = _WORD.findall(text[start:end])
            span = (end - len(text[start:end].lstrip()), end)
            if len(words) > self.longest_sentence:
                yield CheckResult(check.path, f"{len(words)} words: {' '.join(words[:6])} ...", span, None)
            if words and words[0] in self.bare and "?" not in text[start:end]:
                yield CheckResult(check.path, f"no noun before: {' '.join(words[:6])} ...", span, None)
            start = end


def plain(markdown: str) -> str:
    """The prose of a page, with every word in its place: code in a sentence is one word, a block of it is none."""
    text = _BLOCK.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), markdown)
    text = _CODE.sub(lambda code: "X" * len(code[0]), text)
    return _TARGET.sub(lambda target: " " * len(target[0]), text)


def scalars(text: str, keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The values of these keys in a YAML file, with the line that each begins on."""
    nodes = [yaml.compose(text, yaml.CSafeLoader)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value in keys and isinstance(value, yaml.ScalarNode):
                    yield value.start_mark.line + 1, value.value
                nodes.append(value)


def findings(held: Rules, root: Path = ROOT) -> Iterator[str]:
    """Every violation below a folder, as FILE:LINE: RULE: MESSAGE."""
    every = held.checks()
    for pattern in (*held.pages, *held.texts):
        for path in sorted(root.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            parts = scalars(text, held.texts[pattern]) if pattern in held.texts else [(1, text)]
            for line, part in parts:
                # proselint looks for words with a space around each.
                prose = f" {plain(part)} "
                joined = re.sub(r"(?<=[^\s|])\n(?!\s*(?:\n|[*-] |\d+\. |#|\|))", " ", prose)
                for found in (one for check in every for one in check.check_with_flags(joined)):
                    at = line + prose.count("\n", 0, found.span[0])
                    yield f"{path.relative_to(root)}:{at}: {found.check_path}: {found.message}"


def rules() -> Rules:
    """The rules of tools/prose.yaml."""
    return Rules(**yaml.safe_load((ROOT / "tools/prose.yaml").read_text(encoding="utf-8")))


def main() -> int:
    """Print the findings; 1 where there are any."""
    found = list(findings(rules()))
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

"""Checks the English of pages, YAML texts, docstrings and comments by tools/prose.yaml: ``python -m tools.prose``."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from proselint import checks
from proselint.registry.checks import Check, CheckResult
from proselint.registry.checks.types import PreferredFormsSimple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```.*?^```|^    .*?$|<!--.*?-->|<[^>\n]*>|^\[\w+\]:.*?$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`|https?://[^\s)]+|\bNone\b")
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
    code: Sequence[str]

    def checks(self) -> list[Check]:
        """proselint's own checks that the rules name, and the project's in the same form."""
        known = [check for check in checks.__register__ if check.path.split(".")[0] in self.proselint]
        return [*known, *self.code_checks(), Check(self._long, path="sentence")]

    def code_checks(self) -> list[Check]:
        """Return the checks that also hold for docstrings and comments, whose sentences may be long."""
        banned = PreferredFormsSimple(dict(self.banned))
        return [Check(banned, path="banned", message="'{1}': write {0}."), Check(self._bare, path="bare")]

    def _long(self, text: str, check: Check) -> Iterator[CheckResult]:
        """Yield sentences with too many words."""
        for words, span in _sentences(text):
            if len(words) > self.longest_sentence:
                yield CheckResult(check.path, f"{len(words)} words: {' '.join(words[:6])} ...", span, None)

    def _bare(self, text: str, check: Check) -> Iterator[CheckResult]:
        """Yield sentences that begin with a relative pronoun without its noun."""
        for words, span in _sentences(text):
            if words[0] in self.bare and "?" not in text[slice(*span)]:
                yield CheckResult(check.path, f"no noun before: {' '.join(words[:6])} ...", span, None)


def _sentences(text: str) -> Iterator[tuple[list[str], tuple[int, int]]]:
    """Yield the words of each sentence, and its place."""
    start = 0
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        if words := _WORD.findall(text[start:end]):
            yield words, (end - len(text[start:end].lstrip()), end)
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


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """Yield a module's docstrings and its comments, those on following lines as one, with the first line of each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
    block, last = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            follows = block and token.start[0] == last + 1 and token.line.lstrip().startswith("#")
            if block and not follows:
                yield last - len(block) + 1, "\n".join(block)
            block, last = [*(block if follows else ()), token.string[1:].strip()], token.start[0]
    if block:
        yield last - len(block) + 1, "\n".join(block)


def findings(held: Rules, root: Path = ROOT) -> Iterator[str]:
    """Yield every violation below a folder, as FILE:LINE: RULE: MESSAGE."""
    for pattern in (*held.pages, *held.texts, *held.code):
        every = held.code_checks() if pattern in held.code else held.checks()
        for path in sorted(root.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            parts = scalars(text, held.texts[pattern]) if pattern in held.texts else [(1, text)]
            parts = remarks(text) if pattern in held.code else parts
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

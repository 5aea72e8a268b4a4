"""The rules of tools/prose.yaml find a planted sentence, with its file and line, and nothing in good ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools import prose

RULES = prose.rules()
LONG = " ".join(["word"] * (RULES.longest_sentence + 1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Who leaves the list cannot log in.", "1: bare: no noun before: Who leaves the list cannot log"),
        ("# Title\n\nOne line. The file is\nbeside the other.", "4: banned: 'beside'"),
        (f"Short.\n\n{LONG}.", f"3: sentence: {RULES.longest_sentence + 1} words"),
        ("| Key | Text |\n|---|---|\n| a | The node is told. |", "3: banned: 'is told'"),
        ("Thou hast a key, forsooth.", "1: archaism"),
    ],
)
def test_a_planted_sentence_is_found_on_its_line(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    (one,) = prose.findings(replace(RULES, pages=["*.md"], texts={}, code=[]), tmp_path)
    assert one.startswith(f"page.md:{found}"), one


def test_questions_code_and_split_sentences_are_no_findings(tmp_path: Path) -> None:
    half = " ".join(["word"] * (RULES.longest_sentence - 1))
    (tmp_path / "page.md").write_text(f"Who is there? Use `beside`.\n\n    what anew\n\n{half}. {half}; {half}.\n")
    assert list(prose.findings(replace(RULES, pages=["*.md"], texts={}, code=[]), tmp_path)) == []


def test_a_text_in_yaml_is_found_by_its_key_and_line(tmp_path: Path) -> None:
    (tmp_path / "known.yaml").write_text("- name: one\n  why: It is fine.\n- name: anew\n  why: Make it anew.\n")
    rules = replace(RULES, pages=[], texts={"*.yaml": ["why"]}, code=[])
    assert list(prose.findings(rules, tmp_path)) == ["known.yaml:4: banned: 'anew': write again."]


def test_a_docstring_and_a_comment_are_found_but_no_code_and_no_long_sentence(tmp_path: Path) -> None:
    lines = ['"""Return it."""', "", "# What it has.", "# And", "# anew.", "anew = None  # None is None."]
    lines += ["def one() -> None:", f'    """{LONG}.', "", "    A key of ours.", '    """']
    (tmp_path / "one.py").write_text("\n".join(lines) + "\n")
    rules = replace(RULES, pages=[], texts={}, code=["*.py"])
    assert list(prose.findings(rules, tmp_path)) == [
        "one.py:10: banned: 'of ours': write this project's.",
        "one.py:5: banned: 'anew': write again.",
        "one.py:3: bare: no noun before: What it has. ...",
    ]


def test_every_pattern_names_files() -> None:
    assert [one for one in (*RULES.pages, *RULES.texts, *RULES.code) if not list(prose.ROOT.glob(one))] == []

"""The pictures say what is there: the architecture's names exist, and README's pictures are small."""

import ast
import re
from xml.etree import ElementTree

from tests.support import ROOT

PICTURES = ROOT / "docs" / "pictures"
_SVG = "{http://www.w3.org/2000/svg}"


def drawn(kind: str) -> set[str]:
    """The texts of one class in the architecture's picture."""
    texts = ElementTree.parse(PICTURES / "architecture.svg").iter(f"{_SVG}text")
    return {str(text.text) for text in texts if kind in text.attrib["class"].split()}


def test_every_component_in_the_architecture_exists_and_each_of_a_stacks_own_is_there() -> None:
    types = set()
    for path in (ROOT / "components").rglob("*.py"):
        types |= set(re.findall(r'"hyperpod:index:(\w+)"', path.read_text()))
    shown = drawn("component")
    assert shown <= types, "the picture names a component that does not exist"
    program = ast.parse((ROOT / "__main__.py").read_text())
    imported = {name.name for node in program.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert len(imported & types) > 10
    assert imported & types <= shown, "a component of the program is not in the picture"


def test_every_place_in_the_architecture_exists() -> None:
    for text in drawn("name") | drawn("note"):
        for name in re.findall(r"[\w/]+/[\w/]*|\w+\.py", text):
            assert (ROOT / name).exists(), name


def test_the_architecture_is_legible_on_a_phone_and_in_dark() -> None:
    """Of 720 units 390 pixels remain: 24 units are 13 pixels, and nothing is smaller than 12 (WCAG has no number)."""
    text = (PICTURES / "architecture.svg").read_text()
    assert 'viewBox="0 0 720 ' in text
    assert min(map(int, re.findall(r"font-size: (\d+)px", text))) * 390 / 720 >= 12
    assert "prefers-color-scheme: dark" in text
    assert not re.findall(r"(?:href|src)=\"http|url\(http", text), "GitHub shows no picture that loads others"


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)|<img [^>]*src=\"([^\"]+)\"", (ROOT / "README.md").read_text())
    names = [one or other for one, other in shown]
    assert len(names) >= 3
    for name in names:
        assert (ROOT / name).stat().st_size < 500_000, name

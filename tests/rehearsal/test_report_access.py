"""Everybody can read the report: with keyboard or screen reader, in light and dark."""

import re
from pathlib import Path

from tests.rehearsal.pages import change, sample, written
from tests.support import ROOT


def test_every_chart_has_one_tab_stop(tmp_path: Path) -> None:
    page = written(sample() | {"changes": [change()]}, tmp_path / "report.html")
    assert len([one for one in page.elements if "data-chart" in one]) == 2
    assert [one.get("tabindex") for one in page.elements if "tabindex" in one].count("0") == 2


def test_texts_are_at_least_12_px_and_of_enough_contrast_in_light_and_dark() -> None:
    """WCAG 2.2: 4.5 to 1 for texts (1.4.3), 3 to 1 for bars and lines that mean something (1.4.11)."""
    css = (ROOT / "rehearsal" / "reports" / "report.css").read_text()
    assert min(int(size) for size in re.findall(r"font(?:-size)?: (\d+)px", css)) >= 12
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in css.split("@media")[:2])
    for colours in (light, light | dark):
        for text, ground in TEXTS:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for mark in ("task", "critical", "failed", "focus"):
            assert contrast(colours[mark], colours["card"]) >= 3, mark


TEXTS = [
    *(("ink", ground) for ground in ("card", "hover", "warn-soft")),
    *(("muted", ground) for ground in ("card", "hover")),
    *(("good", "good-soft"), ("bad", "bad-soft"), ("bad", "card"), ("warn", "warn-soft"), ("failed", "card")),
]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)

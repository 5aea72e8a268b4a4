"""Made-up input: how many cases are tried, JSON of any kind, and what is left of a good document or text after damage.

HYPOTHESIS_PROFILE=long (``make fuzz``) tries ten thousand cases, others each time; without it fifty, always
the same ones.
"""

import copy
import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "short")
_ALWAYS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
}
settings.register_profile("short", max_examples=50, derandomize=True, **_ALWAYS)
settings.register_profile("long", max_examples=10_000, print_blob=True, **_ALWAYS)
settings.load_profile(PROFILE)
if PROFILE == "short":
    # Hypothesis tries constants of every module that is loaded: reading them takes seconds, and the cases would differ
    # with what ran before.
    providers._get_local_constants = lambda: providers._local_constants

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    found = [(document, key) for key in keys]
    return found + [place for key in keys for place in _places(document[key])]


@st.composite
def changed(draw: st.DrawFn, good: Any, values: st.SearchStrategy[Any] = JSON) -> Any:
    """A document in which some values are others, or missing; now and then something else altogether."""
    document = copy.deepcopy(good)
    for _ in range(draw(st.integers(0, 3))):
        places = _places(document)
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            container[key] = draw(values)
        else:
            del container[key]
    return draw(values) if draw(st.integers(0, 19)) == 0 else document


@st.composite
def damaged(draw: st.DrawFn, *good: str, bits: tuple[str, ...] = ()) -> str:
    """A text with pieces cut out, doubled, exchanged and put in."""
    text = draw(st.sampled_from(good)) if good else ""
    pieces = st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
    pieces = pieces | st.sampled_from(bits) if bits else pieces
    for _ in range(draw(st.integers(0, 5))):
        first, last = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        how = draw(st.integers(0, 3))
        if how == 0:
            text = text[:first] + text[last:]
        elif how == 1:
            text = text[:last] + text[first:]
        elif how == 2:
            text = text[:first] + draw(pieces) + text[first:]
        else:
            text = text[:first] + draw(pieces) + text[last:]
    return text


DEEP = "[" * 100_000


def as_text(document: Any) -> st.SearchStrategy[str]:
    """What a file may hold that should hold a document: one like it, or a part of its text."""
    whole = json.dumps(document)
    return st.one_of(changed(document).map(json.dumps), damaged(whole), st.text())

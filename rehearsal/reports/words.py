"""Times, prices and values as the page writes them."""

import json
from typing import Any

from operations.engine.durations import clock as whole_clock
from operations.engine.inputs import MARK


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds, with hours where there are."""
    return "<0:01" if 0 < seconds < 0.5 else whole_clock(seconds)


def money(usd: float) -> str:
    """A price per hour. Fractions of a cent are shown only for prices below a cent."""
    return f"${usd:,.4f}" if 0 < usd < 0.01 else f"${usd:,.2f}"


def monthly(usd: float) -> str:
    """A price per month, in whole dollars from 100 USD."""
    return f"${usd:,.0f}" if usd >= 100 else money(usd)


def plain(value: Any) -> str:
    """A value as text: strings as they are, nested values as JSON, and nothing of a value that holds a secret."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)
    return "[secret]" if MARK in text else text

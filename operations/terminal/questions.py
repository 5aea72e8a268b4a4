"""Questions at a terminal: text that is checked when it is given, and lists to pick from with the arrow keys."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from questionary import Question


def at_terminal() -> bool:
    """Whether somebody can be asked: they see the question on standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(what: str, default: str, wrong: Callable[[str], str]) -> str:
    """An answer for which ``wrong`` has no objection; an empty one is the default. Raises KeyboardInterrupt."""
    from questionary import text

    def judged(answer: str) -> str | bool:
        return wrong(answer.strip() or default) or True

    question = f"{what} ({default})" if default else what
    return _asked(lambda: text(question, validate=judged, validate_while_typing=False)).strip() or default


def pick(what: str, titles: Mapping[str, str], default: str) -> str:
    """The key of the title that is picked, of which ``default`` is marked at first. Raises KeyboardInterrupt.

    Typing leaves the titles that have what is typed in them.
    """
    from questionary import Choice, select

    choices = [Choice(title, value) for value, title in titles.items()]
    return _asked(
        lambda: select(
            what,
            choices,
            default=default,
            use_jk_keys=False,
            use_search_filter=True,
            instruction="(arrows, or type to filter)",
        )
    )


def _asked(question: Callable[[], Question]) -> str:
    """The answer. Questions go to standard error, as messages do; Ctrl-D ends any of them as Ctrl-C does."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
    from prompt_toolkit.output import create_output

    ending = KeyBindings()

    @ending.add("c-d", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt)

    with create_app_session(output=create_output(sys.stderr)):
        asked = question()
        own = asked.application.key_bindings
        asked.application.key_bindings = merge_key_bindings([*([own] if own else []), ending])
        try:
            return str(asked.unsafe_ask())
        except EOFError:
            # The terminal is gone.
            raise KeyboardInterrupt from None

"""How a step ends when it does not succeed."""

from __future__ import annotations


class StepError(Exception):
    """The step failed; the text is the reason, in one line."""


class TooSlow(StepError):
    """A command did not end within its time. In a poll that is one more state that is not yet the wanted one."""


class Skip(Exception):
    """The step has nothing to do on this node; the text says why."""


class NotYet(Exception):
    """What a poll waits for is not there yet; the text is the state that was seen."""


class Cancelled(Exception):
    """A required step failed meanwhile, so this one stopped waiting."""

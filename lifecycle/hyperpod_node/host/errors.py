"""The ways in which a step ends without success."""

from __future__ import annotations


class StepError(Exception):
    """The step failed; the text is the reason, in one line."""


class TooSlow(StepError):
    """A command did not end within its time. In a poll that is one more state other than the wanted one."""


class Skip(Exception):
    """The step has nothing to do on this node; the text says why."""


class NotYet(Exception):
    """A poll's condition is not met yet; the text is the state that was seen."""


class Cancelled(Exception):
    """A required step failed in the meantime, so this one stopped waiting."""

"""The embedded account fails in the words of AWS and of Pulumi's providers, each of which has a public source."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from operations.failures.advice import matching, named
from rehearsal.account import Fault
from rehearsal.account.faults import _MESSAGES, NO_CAPACITY, NO_NETWORK, NOT_STABLE, SCRIPTS_FAILED, FaultKind

TEXTS: list[dict[str, Any]] = yaml.safe_load(Path("tests/operations/errors.yaml").read_text())


def published(text: str) -> dict[str, Any]:
    """The entry of the list of public errors that has this text."""
    return next(one for one in TEXTS if text in one["text"])


@pytest.mark.parametrize("text", [NO_CAPACITY, SCRIPTS_FAILED, NO_NETWORK])
def test_a_nodes_failure_message_is_one_that_people_have_published(text: str) -> None:
    assert matching(text) == named(published(text)["answer"])


@pytest.mark.parametrize("kind", sorted(_MESSAGES))
def test_every_fault_that_can_be_injected_gets_an_answer_of_its_own(kind: FaultKind) -> None:
    message = str(Fault(kind=kind).error())
    found = matching(message)
    assert found, message
    assert found.name != "failed", message
    said = message.removeprefix(f"{NOT_STABLE}: ")
    assert matching(said) == found, "without Cloud Control's code the answer is another one"


def test_no_fault_has_a_code_of_the_projects_own() -> None:
    codes = {code for code, _ in _MESSAGES.values()}
    # What pulumi-kubernetes says has no code; the rest stand in the API references.
    assert codes - {"Unreachable"} == {"InternalFailure", "ThrottlingException", NOT_STABLE, "ExpiredTokenException"}
    assert not [path for path in Path("rehearsal").rglob("*.py") if "LifecycleScriptFailed" in path.read_text()]

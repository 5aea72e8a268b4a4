"""``apply``: the changes of each part are shown, asked for and made; what one part refuses does not stop the others."""

import json
from collections.abc import Callable, Mapping

import pytest

from operations import applying, target
from operations.applying import Part
from operations.failures import Exit, Failure, bad_input, cannot_know
from operations.outcome import Outcome
from operations.target import Target
from tests.operations.aws import StubbedAws, cluster, ended, run, run_json, stack

Parts = dict[Part, Outcome | Failure]


@pytest.fixture
def applied(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that were applied, each of which has a change."""
    done: list[Part] = []
    aws.answer("sagemaker", "describe_cluster", cluster("InService"))
    monkeypatch.setattr(applying, "_APPLY", _parts(done, {}))
    chosen = stack(aws, "dev", 'slurm={"accounting":{}}')
    monkeypatch.setattr(target, "load", lambda name: chosen)
    return done


def _parts(done: list[Part], said: Mapping[Part, Outcome | Failure]) -> dict[Part, Callable[..., Outcome]]:
    def make(part: Part) -> Callable[[Target, bool], Outcome]:
        def apply(_: Target, dry_run: bool) -> Outcome:
            found = said.get(part, Outcome(changes=[f"change {part}"]))
            if isinstance(found, Failure):
                raise found
            if not dry_run:
                done.append(part)
            return found

        return apply

    return {part: make(part) for part in Part}


def test_the_parts_are_those_of_the_configuration(aws: StubbedAws) -> None:
    def parts(name: str, *settings: str) -> list[str]:
        return [str(part) for part in applying.parts(stack(aws, name, *settings))]

    assert parts("dev") == ["people", "slurm-config"]
    assert parts("dev", 'slurm={"accounting":{}}') == ["people", "accounts", "slurm-config"]
    assert parts("eks-gpu") == []
    assert parts("eks-gpu", 'charts={"queues":"task-governance"}') == ["governance"]


def test_nothing_is_changed_before_somebody_agrees(applied: list[Part]) -> None:
    code, out, err = run("apply", "dev")
    assert (code, out, applied) == (Exit.BAD_INPUT, "", [])
    assert "people: change people\naccounts: change accounts\nslurm-config: change slurm-config\n" in err
    assert "Apply? There is no terminal" in err


def test_everything_is_applied_in_order(applied: list[Part]) -> None:
    code, out, _ = run("apply", "dev", "--yes")
    assert (code, applied) == (Exit.GOOD, [Part.PEOPLE, Part.ACCOUNTS, Part.SLURM_CONFIG])
    assert out == "people: change people\naccounts: change accounts\nslurm-config: change slurm-config\n"


def test_a_dry_run_asks_nobody_and_changes_nothing(applied: list[Part]) -> None:
    code, found = run_json("apply", "dev", "--dry-run", "--part", "people")
    assert (code, applied) == (Exit.GOOD, [])
    assert found == {
        "dry_run": True,
        "parts": [{"part": "people", "changes": ["change people"], "notes": [], "failure": None}],
    }


def test_a_part_that_is_refused_does_not_stop_the_others(applied: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    said: Parts = {
        Part.PEOPLE: cannot_know("workers-1 is silent"),
        Part.ACCOUNTS: Outcome(notes=["kept: account old"]),
    }
    monkeypatch.setattr(applying, "_APPLY", _parts(applied, said))
    code, out, err = run("apply", "dev", "--yes")
    assert (code, applied) == (Exit.CANNOT_KNOW, [Part.SLURM_CONFIG])
    assert out == "accounts: nothing to change\n  kept: account old\nslurm-config: change slurm-config\n"
    assert "workers-1 is silent" in err


def test_the_failures_of_several_parts_are_all_told_and_the_worst_is_the_end(
    applied: list[Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: Parts = {Part.ACCOUNTS: Failure("sacctmgr refused"), Part.SLURM_CONFIG: cannot_know("no answer")}
    monkeypatch.setattr(applying, "_APPLY", _parts(applied, said))
    code, _, err = run("apply", "dev", "--yes")
    assert (code, applied) == (Exit.FAILED, [Part.PEOPLE])
    assert err.index("no answer") < err.index("sacctmgr refused")


def test_failures_are_in_the_json(applied: list[Part], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "_APPLY", _parts(applied, {Part.PEOPLE: bad_input("no", "yes")}))
    code, out, _ = run("apply", "dev", "--part", "people", "-o", "json")
    (part,) = json.loads(out)["parts"]
    assert (code, part["failure"]["error"], part["failure"]["hint"]) == (Exit.BAD_INPUT, "no", "yes")


def test_a_stack_with_nothing_to_apply_is_told() -> None:
    _, err = ended(Exit.BAD_INPUT, "apply", "eks-gpu")
    assert "configures nothing for this verb to apply" in err

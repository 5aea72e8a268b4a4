"""What moves in the program stays in the account, where the program says what it was called before."""

from dataclasses import replace
from pathlib import Path

import pytest

from operations.engine.state import State
from operations.project.loading import Project
from rehearsal.account import Account
from rehearsal.engines.deployment import destroy, up
from tests.golden.stacks import account_of, deployed
from tests.support import few_files, project

HEAD = """
import pulumi, pulumi_aws as aws
from pulumi import Alias, ComponentResource, ResourceOptions
class Inner(ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__('test:index:Inner', name, None, opts)
        child = ResourceOptions(parent=self)
        trust = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", '
        trust += '"Principal": {"Service": "ec2.amazonaws.com"}}]}'
        role = aws.iam.Role(f'{name}-role', name='role', assume_role_policy=trust, opts=child)
        policy = 'arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore'
        aws.iam.RolePolicyAttachment(f'{name}-policy', role=role.name, policy_arn=policy, opts=child)
        self.register_outputs({})
"""
ALONE = "Inner('inner')\n"
INSIDE = "Inner('inner', ResourceOptions(parent=ComponentResource('test:index:Outer', 'outer'){}))\n"
NO_PARENT, URN = "Alias(parent=pulumi.ROOT_STACK_RESOURCE)", "'urn:pulumi:test::probe::test:index:Inner::inner'"


def program(folder: Path, text: str) -> Project:
    (folder / "__main__.py").write_text(HEAD + text)
    config = {"aws:region": "us-west-2"}
    return Project(folder=folder, name="probe", stack="test", main=folder / "__main__.py", config=config)


@pytest.mark.parametrize("alias", [NO_PARENT, URN, "Alias(name='inner', parent=pulumi.ROOT_STACK_RESOURCE)"])
def test_a_component_gets_a_parent_and_what_is_in_it_stays(tmp_path: Path, alias: str) -> None:
    with Account("us-west-2") as account:
        before = up(program(tmp_path, ALONE), account)
        after = up(program(tmp_path, INSIDE.format(f", aliases=[{alias}]")), account, old=before.state)
        assert (after.failure, set(after.operations.values())) == ("", {"same"})
        inner = [one for one in after.state.values() if one.name == "inner-policy"]
        assert [one.urn.split("::")[2] for one in inner] == [
            "test:index:Outer$test:index:Inner$aws:iam/rolePolicyAttachment:RolePolicyAttachment"
        ]
        # The next deployment needs no alias, and nothing is left under an earlier name.
        later = up(program(tmp_path, INSIDE.format("")), account, old=after.state)
        assert set(later.operations.values()) == {"same"}
        assert destroy(later.state, account) == []
        assert account.leftovers() == []


def test_without_an_alias_it_is_another_component(tmp_path: Path) -> None:
    with Account("us-west-2") as account:
        before = up(program(tmp_path, ALONE), account)
        assert "EntityAlreadyExists" in up(program(tmp_path, INSIDE.format("")), account, old=before.state).failure


def before_parents(state: State) -> State:
    """A state as the program left it until November 2026: these two belonged to the stack itself."""
    moved = ("hyperpod:index:Training", "hyperpod:index:ImageRepository")

    def earlier(urn: str) -> str:
        for kind in moved:
            urn = urn.replace(f"::hyperpod:index:Eks${kind}", f"::{kind}")
        return urn

    return {
        earlier(urn): replace(
            one,
            urn=earlier(urn),
            parent="" if one.type in moved else earlier(one.parent),
            deleted_with=earlier(one.deleted_with),
            dependencies=tuple(map(earlier, one.dependencies)),
        )
        for urn, one in state.items()
    }


@pytest.mark.slow
def test_a_stack_of_before_the_parents_is_updated_without_a_change() -> None:
    state = before_parents(deployed("eks-gpu").state)
    assert not any("Eks$hyperpod:index:Training" in urn for urn in state)
    with few_files(), account_of("eks-gpu") as account:
        done = up(project("eks-gpu"), account, old=state, preview=True)
    changed = {urn.split("::")[3]: operation for urn, operation in done.changes.items() if "Training" in urn}
    assert (done.failure, changed) == ("", {})
    assert not any("Eks" not in urn for urn in done.state if "hyperpod:index:Training" in urn)

"""One component alone, under Pulumi's own mocks: what it registers, without a stack or an account."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks, set_mocks

from components.common.context import Context
from components.config import Config

ACCOUNT = "123456789012"


@dataclass
class Made(Mocks):
    """The inputs of everything that is made, by name."""

    inputs: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.inputs[args.name] = args.inputs
        return f"{args.name}-id", {**args.inputs, "arn": f"arn:aws:mock:::{args.name}"}

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        raise AssertionError(f"{args.token} is not mocked")


def made(config: Config, program: Callable[[Context], object]) -> dict[str, dict[Any, Any]]:
    """The inputs of what a program makes with the context of a stack that is configured so."""
    account = Made()
    # A test before this one may have ended the thread's loop.
    asyncio.set_event_loop(asyncio.new_event_loop())
    set_mocks(account, project="hyperpod", stack="mocked")
    pulumi.runtime.test(lambda: program(config.context(ACCOUNT)) and None)()
    return account.inputs

"""Run a Pulumi program in this process, against an embedded engine."""

import asyncio
import gc
import logging
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
from google.protobuf import empty_pb2
from pulumi.runtime import mocks, resource, stack
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.settings import configure

from components.kubernetes.charts import UNVERIFIED, UNVERIFIED_VARIABLE
from operations.project.loading import Project

from .embedded import DeploymentError, Engine


class ProgramError(Exception):
    """The program stopped itself. The text is its own message."""


class _Warnings(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.messages.append(record.getMessage())


class _AtOnce(ThreadPoolExecutor):
    """Makes the SDK's calls of the engine in the loop's own thread. They never wait, and threads cost a third of a run.

    A thread pool by type only: a loop takes no other executor as its default.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run_program(project: Project, engine: Engine, warnings: list[str]) -> None:
    """Run the project's ``__main__.py`` unchanged until every resource is registered. Its ``warnings`` are added.

    Raises ProgramError if the program stops itself, DeploymentError if a resource could not be created.
    """
    # With a level: the SDK has four debug messages for each resource.
    logger = logging.Logger("pulumi-program", logging.WARNING)
    logger.addHandler(_Warnings(warnings))
    # Set before any Pulumi code runs: without its own event loop the runtime waits for ever.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(_AtOnce())
    succeeded = False
    try:
        with _working_folder(project), _no_collection(), _no_traces():
            loop.run_until_complete(_main(project, engine, logger))
        succeeded = not engine.failures
    except pulumi.RunError as error:
        raise ProgramError(str(error)) from error
    except Exception as error:
        if engine.failures:
            raise DeploymentError(engine.failures[0]) from error
        raise
    finally:
        # Nothing is left after a success, and looking for it would go through the tasks of every earlier run.
        if not succeeded:
            _cancel_rest(loop)
        loop.close()
        asyncio.set_event_loop(None)
    if engine.failures:
        raise DeploymentError(engine.failures[0])


async def _main(project: Project, engine: Engine, logger: logging.Logger) -> None:
    pulumi.runtime.reset_options(project=project.name, stack=project.stack)
    pulumi.runtime.set_all_config(project.config)
    # Like mocks.set_mocks, but without the stack resource that it adds: run_in_stack creates the only one.
    features = engine.GetDeploymentInfo(empty_pb2.Empty()).supportedFeatures
    configure(
        mocks.MockSettings(
            monitor=engine,
            monitor_features=set(features),
            engine=mocks.MockEngine(logger),
            project=project.name,
            stack=project.stack,
            dry_run=engine.preview,
            organization="organization",
            callbacks=engine.transforms,
        )
    )

    def program() -> None:
        runpy.run_path(str(project.main), run_name="__main__")

    await stack.run_in_stack(program)


@contextmanager
def _working_folder(project: Project) -> Iterator[None]:
    """Run a program in its own folder, with that folder first on sys.path."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(project.folder)
    sys.path.insert(0, str(project.folder))
    try:
        with patch.dict(os.environ, {UNVERIFIED_VARIABLE: UNVERIFIED}):
            yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn garbage collection off. It would take half of a run: the SDK creates thousands of futures."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _no_traces() -> AbstractContextManager[object]:
    """Do not record where the program declares each resource. That takes a tenth of a run, and nothing reads it."""
    return patch.object(resource, "_get_stack_trace", source_pb2.StackTrace)


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still awaits outputs of resources that were never created, after a failure."""
    rest = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
    loop.set_exception_handler(lambda *_: None)

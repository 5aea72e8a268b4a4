"""`policy`: what whoever deploys a stack may do."""

import json
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError

from operations import target
from operations.failures import NO_CREDENTIALS, bad_input, cannot_know
from operations.terminal import console

from ..policy import iam_documents as policy


def policy_command(
    stack: console.Stack,
    account: Annotated[
        str, typer.Option("--account", metavar="ID", help="The AWS account. By default the one of your credentials.")
    ] = "",
    as_json: console.Json = False,
) -> None:
    """Print the IAM policies that deploying and operating need.

    A rehearsal finds out what the stack deploys. Make a managed policy of
    each document and attach them all to the deployer's role. Do it again
    after a change of the configuration, before you deploy the change, and
    for operators once the cluster is there: its id then limits sessions.

    \b
      hyperpod policy slurm-gpu
      hyperpod policy slurm-gpu --account 123456789012 --json
    """
    if account and not (account.isdecimal() and len(account) == 12):
        raise bad_input(f"--account: {account} is no AWS account", "an account's id has 12 digits")
    chosen = target.load(stack)
    cluster_id = "" if account else _cluster_id(chosen)
    account = account or _account(chosen)
    console.note(f"Rehearsing {stack}, to see what it deploys ...")
    written = policy.write(chosen, account, cluster_id)
    if as_json:
        console.emit(written)
        return
    for who, documents in (("deploy", written.deploy), ("operate", written.operate)):
        for number, document in enumerate(documents, 1):
            _show(f"To {who} {stack}, {number} of {len(documents)}", document)


def _account(chosen: target.Target) -> str:
    """The account of the credentials, which whoever asks for their first policy may not have yet."""
    try:
        return chosen.aws.account_id
    except NO_CREDENTIALS as error:
        hint = f"name the account: hyperpod policy {chosen.stack} --account 123456789012"
        raise cannot_know(f"no usable AWS credentials: {error}", hint, name="credentials") from None


def _cluster_id(chosen: target.Target) -> str:
    """The id that AWS gave the cluster; nothing where there is none, or where these credentials may not ask."""
    try:
        return chosen.cluster_id if chosen.found_cluster else ""
    except (*NO_CREDENTIALS, ClientError):
        return ""


def _show(title: str, document: dict[str, Any]) -> None:
    console.note(f"{title} ({policy.size(document)} of {policy.POLICY_LIMIT} characters):", "bold")
    console.out().out(json.dumps(document, indent=2), highlight=False)

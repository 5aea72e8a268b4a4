"""Records people's sessions with nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi_aws as aws
from pulumi import ComponentResource, ResourceOptions

from ..common.context import Context
from ..common.names import log_group

SESSION_LOG_DAYS = 90
# The name of the document for the sessions of ``hyperpod node connect``.
SESSION = "session"
# The log group to which a node sends its sessions.
SESSIONS = "sessions"


@dataclass(frozen=True, kw_only=True)
class SessionLogsArgs:
    """Inputs of the record. ``run_as``: sessions start as the account that the caller's tag names."""

    context: Context
    run_as: bool = False


class SessionLogs(ComponentResource):
    """Owns the log group for sessions, and the Session Manager document whose sessions are written to it.

    Deliberately absent: the account's own preferences (SSM-SessionManagerRunShell), which apply to every other node
    too. Sessions that use another document are not recorded: docs/security.md has the policy against that.
    """

    def __init__(self, name: str, args: SessionLogsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:SessionLogs", name, None, opts)
        context = args.context
        logs = aws.cloudwatch.LogGroup(
            f"{name}-log",
            name=log_group(context.names.cluster, SESSIONS),
            retention_in_days=SESSION_LOG_DAYS,
            kms_key_id=context.key,
            opts=ResourceOptions(parent=self),
        )
        aws.ssm.Document(
            f"{name}-document",
            name=context.names.document(SESSION),
            document_type="Session",
            document_format="JSON",
            content=logs.name.apply(lambda group: json.dumps(preferences(args, group), sort_keys=True)),
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


def preferences(args: SessionLogsArgs, group: str) -> dict[str, Any]:
    """Return the document (Systems Manager User Guide, "Session document schema"). With
    ``cloudWatchEncryptionEnabled``, a session does not start unless a customer key encrypts its log group. A session
    with Run As does not start without a name: there is no default, which would admit callers without the tag.
    """
    return {
        "schemaVersion": "1.0",
        "description": f"A shell on a node of {args.context.names.cluster}, recorded in {group}",
        "sessionType": "Standard_Stream",
        "inputs": {
            "cloudWatchLogGroupName": group,
            "cloudWatchEncryptionEnabled": args.context.key is not None,
            "cloudWatchStreamingEnabled": True,
            # Required although no bucket is named.
            "s3EncryptionEnabled": True,
            "runAsEnabled": args.run_as,
            **({"runAsDefaultUser": ""} if args.run_as else {}),
        },
    }

"""CloudWatch Logs, EventBridge, SSM, KMS and managed Prometheus in moto."""

import json
from typing import Any

import yaml

from components.common.documents import load

from .books import Books, Inputs, Live, Refused
from .keys import check_logs
from .kinds import Kind, delete_by, register

_LOG_POLICY = "aws:cloudwatch/logResourcePolicy:LogResourcePolicy"
# Amazon CloudWatch Logs API, PutRetentionPolicy.
_RETENTIONS = {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}


def _check_retention(days: Any) -> None:
    if days and int(days) not in _RETENTIONS:
        raise Refused("InvalidParameterException", f"{days:g} days is not a retention CloudWatch Logs offers")


def _retention(account: Books, name: str, days: Any) -> None:
    if days:
        account.client("logs").put_retention_policy(logGroupName=name, retentionInDays=int(days))


def _log_group(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _check_retention(i.get("retentionInDays"))
    if key := i.get("kmsKeyId"):
        check_logs(account, key, account.arn("logs", f"log-group:{i['name']}"))
    account.client("logs").create_log_group(logGroupName=i["name"])
    _retention(account, i["name"], i.get("retentionInDays"))
    return i["name"], {"arn": account.arn("logs", f"log-group:{i['name']}")}


def _update_log_group(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    if key := i.get("kmsKeyId"):
        check_logs(account, key, live.outputs["arn"])
    _check_retention(i.get("retentionInDays"))
    _retention(account, live.id, i.get("retentionInDays"))
    return {}


def _log_policy(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """PutResourcePolicy: ten per account, which moto counts, and one per log group, which moto lacks."""
    if ("policyName" in i) == ("resourceArn" in i):
        raise Refused("InvalidParameterException", "exactly one of policy_name or resource_arn must be specified")
    if "resourceArn" not in i:
        account.client("logs").put_resource_policy(policyName=i["policyName"], policyDocument=i["policyDocument"])
        return i["policyName"], {"policyScope": "ACCOUNT"}
    if any(account.find(_LOG_POLICY, resourceArn=i["resourceArn"])):
        raise Refused("LimitExceededException", f"{i['resourceArn']} has a resource policy already")
    return i["resourceArn"], {"policyScope": "RESOURCE"}


def _update_log_policy(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    if "policyName" in i:
        _log_policy(account, i)
    return {}


def _delete_log_policy(account: Books, live: Live) -> None:
    if "policyName" in live.inputs:
        account.client("logs").delete_resource_policy(policyName=live.id)


def _rule(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    json.loads(i["eventPattern"])
    arn = account.client("events").put_rule(
        Name=i["name"], EventPattern=i["eventPattern"], Description=i.get("description", "")
    )["RuleArn"]
    return i["name"], {"arn": arn}


def _target(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    target = i.get("targetId") or account.new_id("target")
    account.client("events").put_targets(Rule=i["rule"], Targets=[{"Id": target, "Arn": i["arn"]}])
    return f"{i['rule']}-{target}", {"targetId": target}


def _update_target(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    target = {"Id": live.outputs["targetId"], "Arn": i["arn"]}
    account.client("events").put_targets(Rule=i["rule"], Targets=[target])
    return {}


def _delete_target(account: Books, live: Live) -> None:
    account.client("events").remove_targets(Rule=live.inputs["rule"], Ids=[live.outputs["targetId"]])


def _parameter(account: Books, i: Inputs, overwrite: bool = False) -> tuple[str, dict[str, Any]]:
    account.client("ssm").put_parameter(
        Name=i["name"], Type=i["type"], Value=i["value"], Description=i.get("description", ""), Overwrite=overwrite
    )
    return i["name"], {"arn": account.arn("ssm", f"parameter{i['name']}"), "version": 1}


def _document(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if i["documentType"] == "Session":
        _check_session(json.loads(i["content"]))
    account.client("ssm").create_document(
        Name=i["name"],
        Content=i["content"],
        DocumentType=i["documentType"],
        DocumentFormat=i.get("documentFormat", "JSON"),
    )
    return i["name"], {"arn": account.arn("ssm", f"document/{i['name']}"), "status": "Active"}


def _update_document(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    """Like the provider: create a new version and make it the default, unless the content is the same."""
    if i["documentType"] != live.inputs["documentType"]:
        raise Refused("InvalidDocument", "UpdateDocument changes content, not the type of a document")
    if i["documentType"] == "Session":
        _check_session(json.loads(i["content"]))
    ssm = account.client("ssm")
    if i["content"] != live.inputs["content"]:
        made = ssm.update_document(
            Name=live.id,
            Content=i["content"],
            DocumentFormat=i.get("documentFormat", "JSON"),
            DocumentVersion="$LATEST",
        )["DocumentDescription"]
        ssm.update_document_default_version(Name=live.id, DocumentVersion=made["DocumentVersion"])
    return {}


# Booleans that the schema requires of a document's inputs.
_SESSION_INPUTS = ("s3EncryptionEnabled", "cloudWatchEncryptionEnabled", "cloudWatchStreamingEnabled", "runAsEnabled")


def _check_session(content: dict[str, Any]) -> None:
    """AWS Systems Manager User Guide, "Session document schema"."""
    kinds = ("Standard_Stream", "InteractiveCommands", "NonInteractiveCommands", "Port")
    if content.get("schemaVersion") != "1.0" or content.get("sessionType") not in kinds:
        raise Refused("InvalidDocumentContent", "a session document has schemaVersion 1.0 and a known sessionType")
    inputs = content.get("inputs", {})
    missing = [name for name in _SESSION_INPUTS if not isinstance(inputs.get(name), bool)]
    if content["sessionType"] == "Standard_Stream" and missing:
        raise Refused("InvalidDocumentContent", f"inputs of a Standard_Stream session lack {', '.join(missing)}")


def _workspace(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    answer = account.client("amp").create_workspace(alias=i.get("alias", ""))
    endpoint = f"https://aps-workspaces.{account.region}.amazonaws.com/workspaces/{answer['workspaceId']}/"
    return answer["workspaceId"], {"arn": answer["arn"], "prometheusEndpoint": endpoint}


def _rules(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    # moto accepts any text; managed Prometheus validates the file like Prometheus.
    try:
        groups = load(i["data"])["groups"]
        complete = all(
            rule.get("expr") and (rule.get("alert") or rule.get("record")) for g in groups for rule in g["rules"]
        )
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise Refused("ValidationException", f"not a rule file ({error})") from error
    if not complete:
        raise Refused("ValidationException", "every rule needs expr and one of alert, record")
    account.client("amp").create_rule_groups_namespace(
        workspaceId=i["workspaceId"], name=i["name"], data=i["data"].encode()
    )
    return account.arn("aps", f"rulegroupsnamespace/{i['workspaceId']}/{i['name']}"), {}


def _update_rules(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    account.client("amp").put_rule_groups_namespace(
        workspaceId=i["workspaceId"], name=i["name"], data=i["data"].encode()
    )
    return {}


def _delete_rules(account: Books, live: Live) -> None:
    account.client("amp").delete_rule_groups_namespace(workspaceId=live.inputs["workspaceId"], name=live.inputs["name"])


def _key(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    kms = account.client("kms")
    given = {"Policy": i["policy"]} if i.get("policy") else {}
    made = kms.create_key(Description=i.get("description", ""), **given)["KeyMetadata"]
    if i.get("enableKeyRotation"):
        kms.enable_key_rotation(KeyId=made["KeyId"])
    return made["KeyId"], {"arn": made["Arn"], "keyId": made["KeyId"]}


def _delete_key(account: Books, live: Live) -> None:
    days = int(live.inputs.get("deletionWindowInDays") or 30)
    account.client("kms").schedule_key_deletion(KeyId=live.id, PendingWindowInDays=days)


def _repository(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    made = account.client("ecr").create_repository(
        repositoryName=i["name"],
        imageTagMutability=i.get("imageTagMutability", "MUTABLE"),
        imageScanningConfiguration=i.get("imageScanningConfiguration") or {},
        encryptionConfiguration=next(iter(i.get("encryptionConfigurations") or [{"encryptionType": "AES256"}])),
    )["repository"]
    return i["name"], {"arn": made["repositoryArn"], "repositoryUrl": made["repositoryUri"]}


def _delete_repository(account: Books, live: Live) -> None:
    account.client("ecr").delete_repository(repositoryName=live.id, force=bool(live.inputs.get("forceDelete")))


register(
    Kind("aws:kms/key:Key", _key, _delete_key, lambda account, live, i: {}),
    Kind("aws:ecr/repository:Repository", _repository, _delete_repository, lambda account, live, i: {}),
    Kind(
        "aws:cloudwatch/logGroup:LogGroup",
        _log_group,
        delete_by("logs", "delete_log_group", "logGroupName"),
        _update_log_group,
    ),
    Kind(_LOG_POLICY, _log_policy, _delete_log_policy, _update_log_policy),
    Kind(
        "aws:cloudwatch/eventRule:EventRule",
        _rule,
        delete_by("events", "delete_rule", "Name"),
        lambda account, live, i: _rule(account, i)[1],
    ),
    Kind("aws:cloudwatch/eventTarget:EventTarget", _target, _delete_target, _update_target),
    Kind(
        "aws:ssm/parameter:Parameter",
        _parameter,
        delete_by("ssm", "delete_parameter", "Name"),
        lambda account, live, i: _parameter(account, i, overwrite=True)[1],
    ),
    Kind("aws:ssm/document:Document", _document, delete_by("ssm", "delete_document", "Name"), _update_document),
    Kind(
        "aws:amp/workspace:Workspace",
        _workspace,
        delete_by("amp", "delete_workspace", "workspaceId"),
        lambda account, live, i: (
            account.client("amp").update_workspace_alias(workspaceId=live.id, alias=i["alias"]) and {}
        ),
    ),
    Kind("aws:amp/ruleGroupNamespace:RuleGroupNamespace", _rules, _delete_rules, _update_rules),
)

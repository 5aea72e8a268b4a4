"""The audit after destroy, of what has the stack's tags or those of Kubernetes' drivers."""

from typing import Any

import pytest

from operations.deployment import leftovers, tagged
from tests.operations.aws import StubbedAws, stack


def listed(aws: StubbedAws, *resources: str) -> None:
    """The Tagging API lists these, and may lag."""
    found = [{"ResourceARN": f"arn:aws:{one}"} for one in resources]
    aws.answer("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": found})


PROMETHEUS, GRAFANA = "aps:us-west-2:1:workspace/ws-1", "grafana:us-west-2:1:/workspaces/g-0123456789"
REPOSITORY, RULE = "ecr:us-west-2:1:repository/hyperpod/dev", "events:us-west-2:1:rule/dev-events"


def workspaces(prometheus: str, grafana: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"workspaceId": "ws-1", "arn": "a", "status": {"statusCode": prometheus}, "createdAt": 0},
        {
            "id": "g-0123456789", "created": 0, "modified": 0, "endpoint": "x", "grafanaVersion": "10.4",
            "status": grafana, "authentication": {"providers": ["AWS_SSO"]}, "dataSources": [],
        },
    )  # fmt: skip


@pytest.mark.parametrize(("state", "number"), [("ACTIVE", 2), ("DELETING", 0)])
def test_workspaces_are_found_until_they_are_being_deleted(state: str, number: int, aws: StubbedAws) -> None:
    listed(aws, PROMETHEUS, GRAFANA)
    prometheus, grafana = workspaces(state, state)
    aws.answer("amp", "describe_workspace", {"workspace": prometheus}, workspaceId="ws-1")
    aws.answer("grafana", "describe_workspace", {"workspace": grafana}, workspaceId="g-0123456789")
    found = list(tagged.present(stack(aws)))
    assert [one.id for one in found] == ["ws-1", "g-0123456789"][:number]
    aws.assert_all_asked()


def test_a_repository_and_a_rule_are_found_and_what_the_list_only_still_has_is_not(aws: StubbedAws) -> None:
    listed(aws, REPOSITORY, RULE)
    aws.answer("ecr", "describe_repositories", {"repositories": [{}]}, repositoryNames=["hyperpod/dev"])
    aws.answer("events", "describe_rule", {"Name": "dev-events"}, Name="dev-events")
    assert [one.kind for one in tagged.present(stack(aws))] == ["ECR repository", "EventBridge rule"]
    listed(aws, REPOSITORY, RULE, "ec2:us-west-2:1:vpc/vpc-1", "ec2:us-west-2:1:volume/vol-1")
    aws.refuse("ecr", "describe_repositories", "RepositoryNotFoundException")
    aws.refuse("events", "describe_rule", "ResourceNotFoundException")
    aws.refuse("ec2", "describe_volumes", "InvalidVolume.NotFound")
    assert list(tagged.present(stack(aws))) == []
    aws.assert_all_asked()


def test_one_thing_that_cannot_be_asked_does_not_hide_the_others(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_LOOKS", (("tagged resources", tagged.present),))
    key = "kms:us-west-2:1:key/0123"
    listed(aws, key, RULE)
    aws.refuse("kms", "describe_key", "AccessDeniedException")
    aws.answer("events", "describe_rule", {"Name": "dev-events"}, Name="dev-events")
    found = leftovers.audit(stack(aws))
    assert [one.kind for one in found.leftovers] == ["EventBridge rule"]
    (unknown,) = found.unknown
    assert f"arn:aws:{key} (permission denied: DescribeKey)" in unknown


def test_groups_snapshots_and_interfaces_that_controllers_of_kubernetes_made_are_found(aws: StubbedAws) -> None:
    """Their guides name the tags: AWS Load Balancer Controller, Security Groups; aws-ebs-csi-driver, tagging."""
    eks = stack(aws, "eks-gpu")
    group, snapshot = "sg-0123456789abcdef0", "snap-0123456789abcdef0"
    aws.answer("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": []})
    aws.answer("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": []})
    listed(aws, f"ec2:us-west-2:1:snapshot/{snapshot}")
    listed(aws, f"ec2:us-west-2:1:security-group/{group}")
    aws.answer("ec2", "describe_snapshots", {"Snapshots": [{"SnapshotId": snapshot}]})
    aws.answer("ec2", "describe_security_groups", {"SecurityGroups": [{"GroupId": group}]})
    assert [(one.kind, one.id) for one in tagged.present(eks)] == [
        ("EBS snapshot", snapshot),
        ("security group", group),
    ]


def test_a_group_with_the_stacks_tag_is_left_to_the_search_of_its_network(aws: StubbedAws) -> None:
    listed(aws, "ec2:us-west-2:1:security-group/sg-0123456789abcdef0")
    assert list(tagged.present(stack(aws))) == []


def test_a_persons_backup_stays_and_is_said(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """FSx for Lustre User Guide, "Protecting your data with backups": it is retained after the file system's end."""
    monkeypatch.setattr(leftovers, "_LOOKS", (("tagged resources", tagged.present),))
    listed(aws, "fsx:us-west-2:1:backup/backup-0123456789abcdef0")
    backup = {"BackupId": "backup-0123456789abcdef0", "Lifecycle": "AVAILABLE", "Type": "USER_INITIATED"}
    system = {"FileSystemId": "fs-0123456789abcdef0"}
    aws.answer("fsx", "describe_backups", {"Backups": [backup | {"CreationTime": 0, "FileSystem": system}]})
    found = leftovers.audit(stack(aws))
    assert (found.leftovers, found.kept) == ([], ["FSx backup backup-0123456789abcdef0"])


def test_listeners_and_their_rules_go_with_their_load_balancer(aws: StubbedAws) -> None:
    listed(aws, *(f"elasticloadbalancing:us-west-2:1:{one}/app/web/1/2" for one in ("listener", "listener-rule")))
    assert list(tagged.present(stack(aws))) == []


def test_a_tagged_resource_of_an_unknown_kind_is_reported_as_unknown(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_LOOKS", (("tagged resources", tagged.present),))
    listed(aws, "new:us-west-2:1:thing/one")
    found = leftovers.audit(stack(aws))
    assert found.leftovers == []
    assert found.unknown == ["tagged resources: these may still exist: arn:aws:new:us-west-2:1:thing/one"]

"""A team's buckets: who reaches what of them, and the jobs that mount them."""

import json
from typing import Any

import pytest

from operations.jobs.choices import Choices
from operations.jobs.render import render
from operations.jobs.requests import jobs_of
from rehearsal.account.grants import granted
from rehearsal.kubernetes.declared import declare
from tests.golden.stacks import deployed
from tests.operations.test_jobs import pods, refusal
from tests.rehearsal.test_iam_documents import written
from tests.support import config, one, project

TEAMS: dict[str, Any] = {
    "teams": [
        {"name": "vision", "buckets": [{"name": "tokens", "prefix": "v2/", "readOnly": True}, {"name": "results"}]},
        {"name": "speech"},
    ]
}


@pytest.mark.parametrize(
    ("action", "resource", "prefix", "allowed"),
    [
        ("s3:ListBucket", "example-tokens", "tokens/", True),
        ("s3:ListBucket", "example-tokens", "", False),
        ("s3:GetObject", "example-tokens/tokens/part-0", "", True),
        ("s3:GetObject", "example-tokens/salaries.csv", "", False),
        ("s3:PutObject", "example-tokens/tokens/part-0", "", False),
        ("s3:ListBucket", "example-results", "", True),
        ("s3:DeleteObject", "example-results/run-1/step-10", "", True),
        ("s3:ListBucket", "another-bucket", "", False),
        ("s3:DeleteBucket", "example-results", "", False),
    ],
)
def test_a_teams_pods_reach_their_folder_of_their_buckets_and_nothing_else(
    action: str, resource: str, prefix: str, allowed: bool
) -> None:
    role = one(deployed("eks-teams").state, "training-hyperpod-ns-vision-buckets-role", "RolePolicy")
    statements = json.loads(role.inputs["policy"])["Statement"]
    assert granted(statements, (), action, f"arn:aws:s3:::{resource}", {"s3:prefix": prefix}) is allowed


def test_whoever_deploys_may_see_that_these_buckets_exist_and_no_others() -> None:
    deploy = [one for document in written("eks-teams").deploy for one in document["Statement"]]
    for bucket, allowed in {"example-tokens": True, "example-results": True, "another-bucket": False}.items():
        assert granted(deploy, (), "s3:ListBucket", f"arn:aws:s3:::{bucket}", {}) is allowed, bucket


@pytest.mark.parametrize("name", jobs_of(config("eks-gpu")))
def test_every_job_mounts_the_buckets_that_it_is_to_mount(name: str) -> None:
    job = render(name, config("eks-gpu", **TEAMS), Choices(buckets=["results"]))
    worker = next(pod for pod in pods(job) if "persistentVolumeClaim" in str(pod))
    assert {"name": "s3-0", "persistentVolumeClaim": {"claimName": "s3-results"}} in worker["volumes"]
    assert {"name": "s3-0", "mountPath": "/s3/results"} in worker["containers"][0]["volumeMounts"]


def test_a_bucket_of_another_team_is_refused_before_anything_is_submitted() -> None:
    said = refusal("nanogpt", settings=TEAMS, namespace="speech", buckets=["results"])
    assert said == "--bucket results: no bucket of the team of namespace speech (hyperpod:teams, buckets); it has none"
    assert "it has tokens, results" in refusal("nanogpt", settings=TEAMS, buckets=["result"])


@pytest.mark.slow
def test_a_rehearsal_of_the_objects_has_the_buckets_that_the_configuration_names() -> None:
    declared = declare(project("eks-gpu", **TEAMS), config("eks-gpu", **TEAMS))
    claims = {step.manifest["metadata"]["name"] for step in declared.steps if step.manifest}
    assert {"s3-tokens", "s3-results"} <= claims

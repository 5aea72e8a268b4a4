"""checkov finds nothing in what is deployed but what `accepted.csv` explains, and every row there is still needed."""

import pytest

from operations.failures import Exit, Failure
from tests.checkov import run
from tests.checkov.translate import pods, resources, terraform, terraform_types
from tests.golden.stacks import GOLDEN


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_checkov_finds_nothing_that_is_not_explained_and_no_row_is_stale() -> None:
    try:
        found, followed = run.findings()
    except Failure as failure:
        if failure.code == Exit.CANNOT_KNOW:
            pytest.skip(failure.message)
        raise
    rows = run.accepted()
    bare = [
        f"{one.stack} {one.resource}: {one.check} {one.title}"
        for one in found
        if not any(r.explains(one) for r in rows)
    ]
    assert not bare
    stale = [row for row in rows if not any(row.explains(one) for one in found)]
    assert not stale
    assert followed > 3000, "checkov did not read what it was given"


def test_every_type_that_a_stack_deploys_has_terraforms_name_and_no_other_has_a_row() -> None:
    deployed = {told["type"] for name in GOLDEN for told in resources(name).values()}
    assert {one for one in deployed if one.startswith("aws:")} == set(terraform_types())


def test_resources_refer_to_each_other_in_terraform_as_in_pulumi() -> None:
    text = "\n".join(terraform(resources("dev")))
    assert "vpc_id = aws_vpc.network_vpc_Vpc.id" in text
    assert "bucket = aws_s3_bucket.lifecycle_bucket_Bucket.id" in text
    assert "versioning_configuration {\nstatus = " in text
    assert "assume_role_policy = jsonencode({" in text
    assert "role = aws_iam_role.identity_worker_Role.id" in text


def test_a_jobs_templates_become_pods_of_its_namespace() -> None:
    spec = {"containers": [{"name": "one"}]}
    job = {
        "kind": "MPIJob",
        "metadata": {"name": "it", "namespace": "red"},
        "spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": spec}}}},
    }
    (pod,) = pods(job)
    assert pod["metadata"] == {"name": "it-worker", "namespace": "red"}
    assert pod["spec"] == spec


def test_a_finding_that_a_key_mends_is_explained_only_without_that_key() -> None:
    row = run.Accepted(check="X", resource="aws_s3_*", reason="r", unless="security.kmsKey")
    assert row.explains(run.Finding("X", "aws_s3_bucket.b", "dev", ""))
    assert not row.explains(run.Finding("X", "aws_s3_bucket.b", "eks-spot", ""))
    assert not row.explains(run.Finding("Y", "aws_s3_bucket.b", "dev", ""))

"""MLflow: the rights of jobs on the app and its files, what they are told, and what it costs."""

import json
from typing import Any

import pytest

from components.estimates.cost import usage
from operations.jobs.choices import Choices
from operations.jobs.render import render
from rehearsal.account.grants import granted
from tests.golden.stacks import deployed
from tests.operations.test_jobs import pods
from tests.support import config, one

MLFLOW: dict[str, Any] = {"observability": {"mlflow": True}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "role"), [("eks-teams", "training-hyperpod-ns-speech-buckets-role"), ("slurm-image", "mlflow-job")]
)
def test_jobs_log_to_this_app_and_do_nothing_else_with_it(stack: str, role: str) -> None:
    state = deployed(stack).state
    app = one(state, "mlflow-app", "MlflowApp").outputs["arn"]
    files = f"arn:aws:s3:::{one(state, 'mlflow-files', ':Bucket').inputs['bucket']}/1/run/artifacts/model"
    statements = json.loads(one(state, role, "RolePolicy").inputs["policy"])["Statement"]
    for action, resource, allowed in [
        ("sagemaker:CallMlflowAppApi", app, True),
        ("sagemaker:CallMlflowAppApi", f"{app}x", False),
        ("sagemaker:DeleteMlflowApp", app, False),
        ("sagemaker:CreatePresignedMlflowAppUrl", app, False),
        ("s3:PutObject", files, True),
        ("s3:DeleteObject", files, False),
    ]:
        assert granted(statements, (), action, resource, {}) is allowed, (action, resource)


@pytest.mark.parametrize(("env", "last"), [([], "nanogpt"), (["MLFLOW_EXPERIMENT_NAME=mine"], "mine")])
def test_a_jobs_experiment_has_its_name_unless_the_user_names_another(env: list[str], last: str) -> None:
    (pod,) = pods(render("nanogpt", config("eks-gpu", **MLFLOW), Choices(env=env)))
    given = [entry["value"] for entry in pod["containers"][0]["env"] if entry["name"] == "MLFLOW_EXPERIMENT_NAME"]
    assert given[-1] == last
    assert {"configMapRef": {"name": "mlflow", "optional": True}} in pod["containers"][0]["envFrom"]
    assert "MLFLOW" not in str(pods(render("nanogpt", config("eks-gpu"))))


def test_only_the_files_cost_something() -> None:
    assert usage(config("dev", **MLFLOW)).keys() - usage(config("dev")).keys() == {"MLflow's files"}

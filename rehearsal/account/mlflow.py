"""SageMaker's MLflow Apps, as records."""

from typing import Any

from .books import Books, Inputs
from .kinds import register
from .records import record
from .schemas import to_cloudformation

_TOKEN, _TYPE = "aws:sagemaker/mlflowApp:MlflowApp", "AWS::SageMaker::MlflowApp"


def _properties(i: Inputs) -> dict[str, Any]:
    return to_cloudformation(_TYPE, {key: i[key] for key in i.keys() - {"tags", "tagsAll"}})


def _create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """CreateMlflowApp: SageMaker makes up its id."""
    arn = account.arn("sagemaker", f"mlflow-app/app-{account.new_id('m')[2:14].upper()}")
    return arn, {"arn": arn, "modelRegistrationMode": "AutoModelRegistrationDisabled"}


register(record(_TOKEN, _TYPE, _create, translate=_properties))

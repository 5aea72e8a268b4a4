"""IAM in moto. ``policies.py`` checks the policies of all types."""

from typing import Any

from .books import Books, Inputs, Live, Refused
from .kinds import Kind, delete_by, register

_ROLE_LIMIT = 64


def _tags(i: Inputs) -> list[dict[str, str]]:
    merged = {**i.get("tagsAll", {}), **i.get("tags", {})}
    return [{"Key": key, "Value": value} for key, value in merged.items()]


def _role(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if len(i["name"]) > _ROLE_LIMIT:
        raise Refused("ValidationError", f"role name '{i['name']}' is longer than {_ROLE_LIMIT} characters")
    request = {
        "RoleName": i["name"],
        "Path": i.get("path", "/"),
        "AssumeRolePolicyDocument": i["assumeRolePolicy"],
        "Description": i.get("description", ""),
        "Tags": _tags(i),
        **({"PermissionsBoundary": _in_moto(i["permissionsBoundary"])} if i.get("permissionsBoundary") else {}),
    }
    role = account.client("iam").create_role(**request)["Role"]
    return i["name"], {"arn": role["Arn"].replace("arn:aws:", f"arn:{account.partition}:"), "uniqueId": role["RoleId"]}


def _update_role(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    iam = account.client("iam")
    iam.update_assume_role_policy(RoleName=live.id, PolicyDocument=i["assumeRolePolicy"])
    iam.update_role(RoleName=live.id, Description=i.get("description", ""))
    if (boundary := i.get("permissionsBoundary")) != live.inputs.get("permissionsBoundary"):
        if boundary:
            iam.put_role_permissions_boundary(RoleName=live.id, PermissionsBoundary=_in_moto(boundary))
        else:
            iam.delete_role_permissions_boundary(RoleName=live.id)
    return {}


def _role_policy(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    account.client("iam").put_role_policy(RoleName=i["role"], PolicyName=i["name"], PolicyDocument=i["policy"])
    return f"{i['role']}:{i['name']}", {}


def _update_role_policy(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    account.client("iam").put_role_policy(
        RoleName=i["role"], PolicyName=live.inputs["name"], PolicyDocument=i["policy"]
    )
    return {}


def _delete_role_policy(account: Books, live: Live) -> None:
    account.client("iam").delete_role_policy(RoleName=live.inputs["role"], PolicyName=live.inputs["name"])


def _attachment(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    account.client("iam").attach_role_policy(RoleName=i["role"], PolicyArn=_in_moto(i["policyArn"]))
    return f"{i['role']}/{i['policyArn']}", {}


def _detach(account: Books, live: Live) -> None:
    account.client("iam").detach_role_policy(RoleName=live.inputs["role"], PolicyArn=_in_moto(live.inputs["policyArn"]))


def _in_moto(arn: str) -> str:
    """moto knows AWS's managed policies under the commercial partition only."""
    return "arn:aws:" + arn.split(":", 2)[2]


register(Kind("aws:iam/role:Role", _role, delete_by("iam", "delete_role", "RoleName"), _update_role))
register(Kind("aws:iam/rolePolicy:RolePolicy", _role_policy, _delete_role_policy, _update_role_policy))
register(Kind("aws:iam/rolePolicyAttachment:RolePolicyAttachment", _attachment, _detach))

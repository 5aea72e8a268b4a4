"""Databases of Amazon RDS in moto, with what CreateDBInstance refuses and moto does not."""

import json
import secrets
from typing import Any

from .books import Books, Inputs, Live, Refused
from .kinds import Kind, delete_by, register
from .updates import check_database
from .watching import as_aws

_SUBNETS = "aws:rds/subnetGroup:SubnetGroup"
# Amazon RDS API Reference, CreateDBInstance, AllocatedStorage: MariaDB on gp3.
_GIB = range(20, 65537)
# BackupRetentionPeriod.
_DAYS = range(36)
_ZONES = 2


def _subnet_group(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """Amazon RDS User Guide, "Working with a DB instance in a VPC": subnets in two zones at least."""
    found = account.client("ec2").describe_subnets(SubnetIds=list(i["subnetIds"]))["Subnets"]
    if len({one["AvailabilityZone"] for one in found}) < _ZONES:
        raise Refused(
            "DBSubnetGroupDoesNotCoverEnoughAZs",
            "the DB subnet group doesn't meet Availability Zone (AZ) coverage requirement: at least two",
        )
    made = account.client("rds").create_db_subnet_group(
        DBSubnetGroupName=i["name"], DBSubnetGroupDescription=i["description"], SubnetIds=list(i["subnetIds"])
    )["DBSubnetGroup"]
    return i["name"], {"arn": made["DBSubnetGroupArn"], "vpcId": found[0]["VpcId"]}


def _parameter_group(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    client = account.client("rds")
    made = client.create_db_parameter_group(
        DBParameterGroupName=i["name"], DBParameterGroupFamily=i["family"], Description=i["description"]
    )["DBParameterGroup"]
    _parameters(account, i)
    return i["name"], {"arn": made["DBParameterGroupArn"]}


def _parameters(account: Books, i: Inputs) -> dict[str, Any]:
    chosen = [
        {"ParameterName": one["name"], "ParameterValue": one["value"], "ApplyMethod": "immediate"}
        for one in i.get("parameters") or []
    ]
    account.client("rds").modify_db_parameter_group(DBParameterGroupName=i["name"], Parameters=chosen)
    return {}


def _check(i: Inputs) -> None:
    if int(i["allocatedStorage"]) not in _GIB:
        raise Refused("InvalidParameterValue", f"Invalid storage size: {i['allocatedStorage']:g} GiB for gp3")
    if int(i.get("backupRetentionPeriod") or 0) not in _DAYS:
        raise Refused("InvalidParameterValue", "Invalid backup retention period: it is from 0 to 35")
    if i.get("manageMasterUserPassword") and i.get("password"):
        raise Refused("InvalidParameterCombination", "MasterUserPassword cannot be used with ManageMasterUserPassword")
    if i.get("publiclyAccessible"):
        raise Refused("NotRehearsed", "a database that the internet reaches")


def _instance(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _check(i)
    keys = {"KmsKeyId": i.get("kmsKeyId"), "MasterUserSecretKmsKeyId": i.get("masterUserSecretKmsKeyId")}
    made = account.client("rds").create_db_instance(
        DBInstanceIdentifier=i["identifier"],
        Engine=i["engine"],
        EngineVersion=i["engineVersion"],
        DBInstanceClass=i["instanceClass"],
        StorageType=i["storageType"],
        AllocatedStorage=int(i["allocatedStorage"]),
        StorageEncrypted=bool(i.get("storageEncrypted")),
        DBSubnetGroupName=i["dbSubnetGroupName"],
        DBParameterGroupName=i["parameterGroupName"],
        VpcSecurityGroupIds=list(i["vpcSecurityGroupIds"]),
        PubliclyAccessible=False,
        MasterUsername=i["username"],
        ManageMasterUserPassword=bool(i.get("manageMasterUserPassword")),
        BackupRetentionPeriod=int(i.get("backupRetentionPeriod") or 0),
        CACertificateIdentifier=i["caCertIdentifier"],
        **{key: value for key, value in keys.items() if value},
    )["DBInstance"]
    # So does the provider read it, here and later (terraform-provider-aws, internal/service/rds/instance.go).
    one = [{"Name": "dbi-resource-id", "Values": [made["DbiResourceId"]]}]
    account.client("rds").describe_db_instances(Filters=one)
    secret = made["MasterUserSecret"]
    # moto has the same user and password for all.
    login = {"username": i["username"], "password": secrets.token_urlsafe(20)}
    with as_aws():
        account.client("secretsmanager").put_secret_value(SecretId=secret["SecretArn"], SecretString=json.dumps(login))
    return made["DbiResourceId"], {
        "arn": made["DBInstanceArn"],
        # moto has it without the id that is an account's in a region.
        "address": f"{i['identifier']}.c0123456789a.{account.region}.rds.amazonaws.com",
        "port": 3306,
        "masterUserSecrets": [
            {"secretArn": secret["SecretArn"], "secretStatus": "active", "kmsKeyId": secret["KmsKeyId"]}
        ],
    }


def _update_instance(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    """ModifyDBInstance."""
    _check(i)
    account.client("rds").modify_db_instance(
        DBInstanceIdentifier=i["identifier"],
        DBInstanceClass=i["instanceClass"],
        AllocatedStorage=check_database(live, i),
        BackupRetentionPeriod=int(i.get("backupRetentionPeriod") or 0),
        ApplyImmediately=True,
    )
    return {}


def _delete_instance(account: Books, live: Live) -> None:
    """DeleteDBInstance must say whether to take a last snapshot."""
    if not live.inputs.get("skipFinalSnapshot") and not live.inputs.get("finalSnapshotIdentifier"):
        raise Refused("InvalidParameterCombination", "FinalDBSnapshotIdentifier is required")
    account.client("rds").delete_db_instance(
        DBInstanceIdentifier=live.inputs["identifier"],
        SkipFinalSnapshot=bool(live.inputs.get("skipFinalSnapshot")),
        DeleteAutomatedBackups=bool(live.inputs.get("deleteAutomatedBackups", True)),
    )


register(Kind(_SUBNETS, _subnet_group, delete_by("rds", "delete_db_subnet_group", "DBSubnetGroupName")))
register(
    Kind(
        "aws:rds/parameterGroup:ParameterGroup",
        _parameter_group,
        delete_by("rds", "delete_db_parameter_group", "DBParameterGroupName"),
        lambda account, live, i: _parameters(account, i),
    )
)
register(Kind("aws:rds/instance:Instance", _instance, _delete_instance, _update_instance))

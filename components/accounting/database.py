"""The RDS database of Slurm's accounting, which the controller finds through a parameter of the stack."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from hyperpod_node.accounting.remote import NAME, parameter
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.context import Context
from ..common.policies import allow, document
from ..security.encryption import decrypt_through
from .keys import Accounting

# Slurm takes MySQL and MariaDB (slurm.schedmd.com/accounting.html). HyperPod's own default is MariaDB (SageMaker
# Developer Guide, "Using an external accounting database"), and the rehearsal of nodes runs this release.
ENGINE, VERSION, FAMILY = "mariadb", "10.11", "mariadb10.11"
# The authority whose certificates the lifecycle scripts have, valid until 2061 (Amazon RDS User Guide, "Using SSL/TLS
# to encrypt a connection to a DB instance").
AUTHORITY = "rds-ca-rsa2048-g1"
USER = "slurm"
# slurm.schedmd.com/accounting.html, "Slurm Accounting Configuration After Build": slurmdbd's changes of the tables take
# long. RDS gives InnoDB three quarters of the memory by itself, which is more than the page asks for.
_PARAMETERS = {"innodb_lock_wait_timeout": "900", "require_secure_transport": "1"}


@dataclass(frozen=True, kw_only=True)
class AccountingDatabaseArgs:
    """Inputs of the database. ``controllers``: the name of their role, None if the stack does not own it; ``by_image``:
    HyperPod's image sets Slurm up.
    """

    context: Context
    accounting: Accounting
    by_image: bool
    subnet_ids: Sequence[Input[str]]
    security_group_ids: Sequence[Input[str]]
    controllers: Input[str] | None


class AccountingDatabase(ComponentResource):
    """Owns the database, its subnet group and settings, the controllers' right to its password, and the parameter with
    the addresses of both.

    The cluster waits neither for it nor for the file system: it takes about ten minutes, and the controller waits for
    the parameter. If HyperPod's image sets Slurm up, there is no parameter: the database is an input of the cluster,
    ``of_hyperpod``, which waits for it and for ``ready``. RDS generates the password, keeps it in Secrets Manager and
    rotates it every seven days, so no input, output or state contains it. Like the file system, it is deleted with the
    stack, with its backups. slurmdbd stays on the controller. Deliberately absent: a standby in another zone (the
    controllers are in one), a rotation schedule for the password, and an export of logs.
    """

    of_hyperpod: aws_native.sagemaker.ClusterAccountingDatabaseArgs | None = None
    ready: list[pulumi.Resource]
    outputs: dict[str, Output[str]]

    def __init__(self, name: str, args: AccountingDatabaseArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:AccountingDatabase", name, None, opts)
        context, child = args.context, ResourceOptions(parent=self)
        wanted = args.accounting
        identifier = context.names.database
        subnets = aws.rds.SubnetGroup(
            f"{name}-subnets",
            name=identifier,
            description="Slurm's accounting",
            subnet_ids=list(args.subnet_ids),
            opts=child,
        )
        chosen = aws.rds.ParameterGroup(
            f"{name}-parameters",
            name=identifier,
            family=FAMILY,
            description="Slurm's accounting",
            parameters=[
                aws.rds.ParameterGroupParameterArgs(name=key, value=value) for key, value in _PARAMETERS.items()
            ],
            opts=child,
        )
        database = aws.rds.Instance(
            f"{name}-database",
            identifier=identifier,
            engine=ENGINE,
            engine_version=VERSION,
            auto_minor_version_upgrade=True,
            ca_cert_identifier=AUTHORITY,
            instance_class=wanted.instance_class,
            storage_type="gp3",
            allocated_storage=wanted.storage_gib,
            storage_encrypted=True,
            kms_key_id=context.key,
            db_subnet_group_name=subnets.name,
            parameter_group_name=chosen.name,
            vpc_security_group_ids=list(args.security_group_ids),
            publicly_accessible=False,
            username=USER,
            manage_master_user_password=True,
            master_user_secret_kms_key_id=context.key,
            backup_retention_period=wanted.backup_days,
            copy_tags_to_snapshot=True,
            delete_automated_backups=True,
            skip_final_snapshot=True,
            # Changes apply with `pulumi up`, not in the next maintenance window.
            apply_immediately=True,
            tags={"Name": context.names.cluster},
            opts=ResourceOptions(parent=self, protect=context.protect),
        )
        secret = database.master_user_secrets[0].secret_arn
        self.ready = allowed = list[pulumi.Resource]()
        if args.controllers is not None:
            read = Output.all(secret, context.key).apply(
                lambda ids: document(
                    [
                        allow(["secretsmanager:GetSecretValue"], [ids[0]]),
                        *(decrypt_through(context, ids[1], "secretsmanager") if ids[1] else ()),
                    ]
                )
            )
            allowed.append(aws.iam.RolePolicy(f"{name}-password", role=args.controllers, policy=read, opts=child))
        self.outputs = {"accountingDatabase": database.address}
        self.register_outputs(self.outputs)
        if args.by_image:
            # Named, because the default is slurm_acct_db by CloudFormation, and has the cluster's id by the API.
            self.of_hyperpod = aws_native.sagemaker.ClusterAccountingDatabaseArgs(
                endpoint=database.address, port=database.port, secret_arn=secret, name=NAME
            )
            return
        aws.ssm.Parameter(
            f"{name}-place",
            name=parameter(context.names.cluster),
            type="String",
            description="Where the database of Slurm's accounting and its password are",
            value=Output.all(database.address, database.port, secret).apply(
                lambda place: json.dumps({"host": place[0], "port": int(place[1]), "secret": place[2]}, sort_keys=True)
            ),
            # Readers of the parameter may read the password.
            opts=ResourceOptions(parent=self, depends_on=allowed),
        )

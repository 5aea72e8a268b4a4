"""Renders ``hyperpod_parameters.json``, the lifecycle scripts' input, from the configuration.

Not ``provisioning_parameters.json``: that file configured Slurm before the API could. HyperPod refuses a cluster that
has both, and writes its own next to the scripts (SageMaker Developer Guide, "Migrating to API-driven Slurm
configuration").
"""

from hyperpod_node.accounting.accounts import OWN_ACCOUNT, with_users
from hyperpod_node.facts import parameters
from hyperpod_node.facts.model import (
    HOME_MADE,
    Account,
    Accounting,
    ConfFile,
    Default,
    ExtraConf,
    Group,
    Mlflow,
    Parameters,
    People,
    Person,
    Qos,
)
from hyperpod_node.people import apply as people
from hyperpod_node.slurm import extra_conf

from ..catalogue.accelerators import InstanceType
from ..common.names import Names
from ..config import Config
from ..slurm.conf_folder import files as conf_files
from ..storage.file_systems import MOUNT_POINT
from ..workers.instance_groups import InstanceGroup

FILE_NAME, PEOPLE_FILE, CONF_FILE = parameters.FILE_NAME, people.FILE_NAME, extra_conf.FILE_NAME


def render(config: Config, names: Names, remote_write_url: str | None = None, mlflow: Mlflow | None = None) -> str:
    """Return the file's text."""
    return parameters.render(facts(config, names, remote_write_url, mlflow))


def facts(
    config: Config, names: Names, remote_write_url: str | None = None, mlflow: Mlflow | None = None
) -> Parameters:
    """Return a node's facts. It finds the file system by its tag, the cluster's id: the file system's own id is not
    known before the nodes start, and they do not wait for it.
    """
    settings, net = config.settings, config.settings.network
    return Parameters(
        cluster_id=names.cluster_id,
        cluster_name=names.cluster,
        region=names.region,
        orchestrator=settings.orchestrator,
        instance_groups=tuple(_group(config, group, group.types[0]) for group in config.instance_groups),
        fsx_mount=MOUNT_POINT,
        fsx_id=settings.fsx.file_system_id,
        fsx_efa=settings.fsx.efa,
        home_fsx_id=HOME_MADE if settings.fsx.home_storage_gib else settings.fsx.home_file_system_id,
        ssh_public_key_parameter=names.ssh_key_parameter if settings.ssh_public_key else None,
        imds_v1=settings.imds_v1,
        cidrs=tuple(cidr for cidr in (net.cidr, net.secondary_cidr) if cidr) if not net.vpc_id else (),
        lost_after_seconds=settings.lost_node_seconds,
        remote_write_url=remote_write_url,
        images_registry=config.region.registry(config.region.eks_images_account),
        metrics_detail=settings.observability.detail,
        health_policy=settings.health_policy,
        ssh_only_with_job=settings.security.ssh_only_with_job,
        containers=settings.slurm.containers,
        accounting=accounting(config),
        shared_queue=settings.slurm.shared_queue,
        setup=settings.slurm.setup,
        mlflow=mlflow,
        fallback_groups=tuple(_group(config, one, row) for one in config.instance_groups for row in one.types[1:]),
    )


def accounting(config: Config) -> Accounting | None:
    """Return what Slurm records and limits, None without accounting.

    People with an account in their list are also in that one; people in no account are in the default one.
    """
    slurm, people = config.settings.slurm, config.settings.users
    if slurm.accounting is None:
        return None
    defaults = tuple(Default(user.name, user.account) for user in people if user.account)
    accounts = [Account(**account.model_dump()) for account in slurm.accounts]
    placed = {user for account in accounts for user in account.users}
    others = tuple(user.name for user in people if user.name not in placed and not user.account)
    accounts = with_users(accounts, OWN_ACCOUNT, others)
    for one in defaults:
        there = {user for account in accounts if account.name == one.account for user in account.users}
        accounts = with_users(accounts, one.account, () if one.user in there else (one.user,))
    return Accounting(
        database=slurm.accounting.database,
        retention_months=slurm.accounting.retention_months,
        accounts=tuple(accounts),
        qos=tuple(Qos(**qos.model_dump()) for qos in slurm.qos),
        defaults=defaults,
    )


def people_text(config: Config, names: Names) -> str:
    """Return the text of the file with the cluster's people. It is separate, so that a change of it changes nothing
    else.
    """
    settings = config.settings
    return parameters.render(
        People(
            cluster_id=names.cluster_id,
            homes="/home" if settings.fsx.own_home else "/fsx/home",
            people=tuple(
                Person(
                    name=user.name,
                    uid=user.uid,
                    gid=user.uid if user.gid is None else user.gid,
                    ssh_keys=user.ssh_keys,
                    sudo=user.sudo,
                )
                for user in settings.users
            ),
        )
    )


def conf_text(config: Config, names: Names) -> str:
    """Return the text of the file with the stack's own lines of slurm.conf. It is separate, like that of the people."""
    found = (
        ConfFile(path.name, path.read_text(encoding="utf-8")) for path in conf_files(config.settings.slurm.extra_conf)
    )
    return parameters.render(ExtraConf(cluster_id=names.cluster_id, files=tuple(found)))


def _group(config: Config, group: InstanceGroup, row: InstanceType) -> Group:
    return Group(
        name=group.name,
        role=group.role,
        instance_type=row.name,
        partition=group.partition,
        accelerator=row.accelerator,
        accelerator_model=row.accelerator_model,
        accelerators=row.accelerators,
        neuron_cores=row.neuron_cores,
        gres=_gres(config, row) if row.accelerator else "",
        efa=row.efa,
        efa_interfaces=row.efa_interfaces,
        lustre_efa_interfaces=row.lustre_efa_interfaces,
        rdma_read=row.rdma_read,
        network_gbps=row.network_gbps,
        nvme_disks=row.nvme_disks,
        taints=tuple(sorted({taint.key for taint in group.taints})),
        features=_features(config, row) if group.role == "worker" else (),
    )


def _features(config: Config, row: InstanceType) -> tuple[str, ...]:
    """Return a node's type and zone, for jobs that ask for them in Slurm. The zone of an existing subnet may be
    unknown.
    """
    settings = config.settings
    if settings.orchestrator != "slurm":
        return ()
    known = settings.availability_zone_id or not settings.network.vpc_id
    return (row.name, config.zone_id) if known else (row.name,)


def _gres(config: Config, row: InstanceType) -> str:
    """Return the name of its accelerators in Slurm, with the model as type if the stack asks for types.

    Words are joined by underscores, as Slurm itself makes types of names (gres.conf(5), Type).
    """
    name = config.accelerator.slurm_gres
    return f"{name}:{row.accelerator_model.lower().replace(' ', '_')}" if config.settings.slurm.typed_gres else name

"""The keys of Slurm's accounting: its database, the accounts, and the qualities of service."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from ..people.keys import CHARGED, AccountName, UserName
from ..schema.fields import AT_BOOT, IN_PLACE, Change, Model, SubnetId

DEFAULT_RETENTION_MONTHS = 13
_MOVED = Change("in part", "to rds in place, by `hyperpod node run-scripts STACK controller`; back is refused")
_STAY = Change("in part", "refused for a database that is there")
_GROWS = Change("in part", "grows in place, by a tenth at least; less is refused")
_KEPT = Change("at boot", "in place, by `hyperpod apply`; what is removed is kept, and told")


class Accounting(Model):
    """Slurm's record of jobs, in a database."""

    database: Annotated[Literal["local", "rds"], _MOVED] = "local"
    """Where it is. local: MariaDB on the controller, with an hourly copy on the file system. rds: a MariaDB of Amazon
    RDS, with its own backups, which outlives every controller."""
    instance_class: Annotated[
        Literal["db.t4g.medium", "db.t4g.large", "db.m6g.large", "db.m6g.xlarge"],
        Change("in place", "in place; the database is away for some minutes, and Slurm catches up"),
    ] = "db.t4g.medium"
    """Instance class of the database. Needs `database` rds."""
    # From 400 GiB a volume has other IOPS, which an update that grows past it has to name, or RDS refuses it (Amazon
    # RDS User Guide, "gp3 storage"; hashicorp/terraform-provider-aws, issue 28382).
    storage_gib: Annotated[StrictInt, _GROWS] = Field(20, alias="storageGiB", ge=20, le=399)
    """Its storage in GiB, gp3. A million jobs take about one. Needs `database` rds."""
    backup_days: Annotated[StrictInt, IN_PLACE] = Field(7, ge=0, le=35)
    """Retention of its automatic backups in days; 0 turns them off. They go with the stack. Needs `database` rds."""
    subnet_ids: Annotated[tuple[SubnetId, ...], _STAY] = ()
    """Two subnets of the existing VPC, in different zones, for the database. Needs `database` rds and
    `network.vpcId`."""
    retention_months: Annotated[StrictInt, AT_BOOT] = Field(DEFAULT_RETENTION_MONTHS, ge=1, le=120)
    """Months for which finished jobs and their use are kept."""


class SlurmAccount(Model):
    """An account to which jobs are charged."""

    name: Annotated[AccountName, _KEPT]
    """Name of the account."""
    parent: Annotated[AccountName, CHARGED] = "root"
    """Account of which it has a share. root has all of the cluster."""
    fairshare: Annotated[StrictInt, CHARGED] = Field(1, ge=0, le=65536)
    """Its share, in proportion to those of the other accounts with the same parent."""
    max_gpus: Annotated[StrictInt | None, CHARGED] = Field(None, ge=0)
    """Number of GPUs, or Trainium chips, that all of its jobs may have at a time. Default: no limit."""
    qos: Annotated[tuple[AccountName, ...], CHARGED] = ()
    """Qualities of service that its jobs may ask for; the first is what they get by default. Default: normal."""
    users: Annotated[tuple[UserName, ...], _KEPT] = ()
    """People in it, by their user names. Users in several accounts default to the first."""


class SlurmQos(Model):
    """A quality of service: the priority of jobs and their limits."""

    name: Annotated[AccountName, _KEPT]
    """Name of the QOS. normal is Slurm's own, which accounts have by default."""
    priority: Annotated[StrictInt, CHARGED] = Field(0, ge=0, le=65536)
    """Priority of its jobs: a job of a higher one comes first, whatever the shares are."""
    preempts: Annotated[tuple[AccountName, ...], CHARGED] = ()
    """Qualities of service whose running jobs return to the queue when its jobs need their nodes."""
    max_gpus: Annotated[StrictInt | None, CHARGED] = Field(None, ge=0)
    """Number of GPUs, or Trainium chips, that all of its jobs may have at a time. Default: no limit."""
    max_gpus_per_user: Annotated[StrictInt | None, CHARGED] = Field(None, ge=0)
    """The same for the jobs of each user. Default: no limit."""
    max_hours: Annotated[StrictInt | None, CHARGED] = Field(None, ge=1, le=8760)
    """The longest time limit of its jobs, hours. Default: no limit."""

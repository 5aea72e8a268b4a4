"""The keys of Slurm: its accounting, limits, containers, and additions to its configuration."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from ..accounting.keys import Accounting, SlurmAccount, SlurmQos
from ..schema.fields import AT_BOOT, Change, Model

_TRIED = Change("at boot", "in place, by `hyperpod apply`, or by the next controller")
_SET_UP = Change("refused", "refused: only new nodes would have it, and a controller is never new; make another stack")


class Slurm(Model):
    """Slurm's accounts and qualities of service, containers for its jobs, additions to slurm.conf, and its queue."""

    setup: Annotated[Literal["scripts", "image"], _SET_UP] = "scripts"
    """Software that sets Slurm up on the nodes. scripts: this project's scripts (OnCreate). image: HyperPod's image,
    and the scripts add what it lacks (OnInitComplete); docs/slurm-image.md has the restrictions."""
    accounting: Accounting | None = None
    """Record jobs, and allow only people in an account to run any. Without it Slurm keeps no record."""
    accounts: tuple[SlurmAccount, ...] = ()
    """Accounts, their shares, limits and members. The user ubuntu, who runs this project's tests, is in the account
    default unless it is named here. Needs `accounting`."""
    qos: tuple[SlurmQos, ...] = ()
    """Qualities of service: priorities, preemption and limits. Needs `accounting`."""
    containers: Annotated[StrictBool, AT_BOOT] = False
    """Let jobs run in containers, by `srun --container-image`: Enroot and Pyxis of HyperPod's image, or of
    `containerPackages`."""
    container_packages: Annotated[str | None, AT_BOOT] = Field(None, min_length=1)
    """Folder with packages of Enroot and Pyxis, relative to the project, for images that bring none.
    `hyperpod download containers` fills it. Needs `containers`."""
    extra_conf: Annotated[str | None, _TRIED] = None
    """Folder with files called *.conf, relative to the project: lines that are added to slurm.conf. Default: none."""
    typed_gres: Annotated[StrictBool, AT_BOOT] = False
    """Let jobs ask for accelerators by their model, as in --gres=gpu:h100:8 or neuron:trainium2:16. --gres=gpu:8 means
    any model then."""
    shared_queue: Annotated[StrictBool, AT_BOOT] = False
    """Keep the queue on the shared file system, where a controller with a new disk finds it."""

    @property
    def by_image(self) -> bool:
        """Whether HyperPod's image sets Slurm up."""
        return self.setup == "image"

    @property
    def on_rds(self) -> bool:
        """Whether the accounting is in a database of Amazon RDS."""
        return self.accounting is not None and self.accounting.database == "rds"

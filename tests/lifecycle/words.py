"""What the nodes' scripts may say to programs, whatever a test lets those answer: the scripts ask for nothing else.

A fake that a test puts in place looks at the words it is about. These are all of a line's words, as its manual has
them, how many seconds the command gets, and what it finds in its environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hyperpod_node.host import aws_cli

if TYPE_CHECKING:
    from tests.lifecycle.rig import FakeHost


class Line(NamedTuple):
    """A command line by its form. ``seconds``: its limits, each a number or a part of a wait (settings.TIMEOUTS)."""

    form: str
    seconds: tuple[float | str, ...] = (30,)
    environment: Mapping[str, str] = {}


# A worker has no slurm.conf of its own.
_CLIENT = {"SLURM_CONF": r".*/etc/hyperpod/slurm-client\.conf"}
# Times as numbers, and arrays with all of their tasks (sinfo(1), squeue(1)).
_PLAIN = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
# Debian's script for System V would have systemd read everything again (systemd-sysv-install).
_LINKS = {"SYSTEMCTL_SKIP_SYSV": "1"}
# No pager, and no metadata without a session token (AWS CLI User Guide, "Environment variables").
_NO_PAGER = {"AWS_PAGER": "", "AWS_EC2_METADATA_V1_DISABLED": "true"}
_OF_AWS = " ".join(("--region [a-z0-9-]+ --output json", *aws_cli.LIMITS))
_COLUMNS = "NodeList:|,PartitionName:|,StateComplete:|,CPUsState:|,Gres:|,GresUsed:|,Memory:|,AllocMem:|,FreeMem:|"
_OF_JOBS = "JobArrayID:|,State:|,Partition:|,NumCPUs:|,EligibleTime:|,Reason:|"
_NODE = r"NodeName=\S+"
_DAEMONS = "slurmctld|slurmd|slurmdbd|munge|chronyd?|mariadb|ssh|sshd|containerd|docker|kubelet"
_OURS = r"hyperpod-[a-z-]+(@(node|lustre))?(\.(service|timer|target|socket|path))?"
_UNIT = f"({_DAEMONS}|{_OURS})"

LINES: Sequence[Line] = (
    # scontrol(1); "-o" is a node on one line.
    Line("scontrol ping", (10,)),
    Line("scontrol --version", (10,)),
    Line("scontrol reconfigure"),
    Line("scontrol show config", (10,), _CLIENT),
    Line(r"scontrol show node \S+", (10,)),
    Line(r"scontrol show node \S+ -o", (10,), _CLIENT),
    Line(r"scontrol show node \S+ -o", (10,)),
    Line(rf"scontrol update {_NODE} State=RESUME", (30, 10)),
    Line(rf"scontrol update {_NODE} State=RESUME", (10,), _CLIENT),
    Line(rf"scontrol update {_NODE} State=DOWN Reason=(login node|hyperpod-requeue: no answer for \d+ s)"),
    Line(rf"scontrol update {_NODE} State=FUTURE"),
    Line(rf"scontrol update {_NODE} State=DRAIN Reason=hyperpod-health: .+", (10,)),
    Line(rf"scontrol update {_NODE} State=FAIL Reason=Action:(Reboot|Replace)", (10,)),
    Line(r"scontrol update JobId=\d+ StartTime=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"),
    Line("scontrol show node -o", (10,)),
    Line(r"scontrol write batch_script \d+ -", (10,)),
    # sinfo(1), squeue(1), sdiag(1), scancel(1): no header, every partition, a line for each node.
    Line("sinfo -h"),
    Line(r"sinfo -h -R -o %N\|%E"),
    Line("sinfo -h -N -o %n %T", (20,)),
    Line("sinfo -h -N -O NodeList:128,StateLong:32,Reason:64", (10,)),
    Line(f"sinfo -h -a -N -O {re.escape(_COLUMNS)}", (10,), _PLAIN),
    Line(r"squeue -h -a -o %A\|%T\|%r\|%V", (10,)),
    Line(r"squeue -h -w \S+ -o %A\|%N", (10,)),
    Line(f"squeue -h -a -t all -O {re.escape(_OF_JOBS)}", (10,), _PLAIN),
    Line("sdiag", (10,), _PLAIN),
    Line(r"scancel --user=[a-z][a-z0-9_-]*"),
    # ssh(1): no question, and no wait for a node that is gone; the words of slurm/end-job.sh.
    Line(r"ssh -o BatchMode=yes -o ConnectTimeout=2 \S+ (rejoin|\d+)", (15,)),
    # systemctl(1): a signal to a unit's processes.
    Line("systemctl kill --signal=HUP systemd-logind"),
    # pkill(1): by the real user, whatever the process calls itself.
    Line(r"pkill -KILL -U \d+"),
    # journalctl(1): of this boot, the messages alone.
    Line(f"journalctl --unit {_UNIT} --boot --lines 40 --output cat --no-pager", (10,)),
    # systemctl(1)
    Line("systemctl daemon-reload"),
    Line(f"systemctl is-active --quiet {_UNIT}"),
    Line(rf"systemctl is-active( {_UNIT})+", (5,)),
    Line("systemctl show --property ActiveState --value dlami-nvme"),
    Line(
        "systemctl show --property=ActiveState,NeedDaemonReload,UnitFileState "
        rf"hyperpod-none\.service( {_UNIT})+"
    ),
    Line(f"systemctl enable --no-reload {_UNIT}", (30,), _LINKS),
    Line(f"systemctl disable --no-reload( --now)?( {_UNIT})+", (30,), _LINKS),
    Line(r"systemctl enable --now var-lib-(containerd|docker|kubelet)\.mount", (60,)),
    Line(f"systemctl reset-failed {_UNIT}"),
    Line(f"systemctl start (--no-block )?{_UNIT}", ("slurm",)),
    Line("systemctl start ssh(d)?"),
    Line("systemctl reload ssh(d)?"),
    Line(f"systemctl restart {_UNIT}", ("slurm",)),
    Line("systemctl start slurmctld", (320,)),
    # systemd-system.conf(5): a daemon has 90 s to end.
    Line("systemctl (stop|restart) (slurmctld|slurmdbd)", (120,)),
    Line("systemctl stop hyperpod-accounting-backup.timer mariadb", (120,)),
    Line("systemctl stop hyperpod-accounting-password.timer", (120,)),
    Line("systemctl restart munge", (180,)),
    Line("systemctl (stop|restart) (containerd|docker|kubelet)", (120,)),
    # systemd.socket(5): a socket that is not stopped starts its service again.
    Line(r"systemctl stop docker\.socket", (120,)),
    Line(rf"systemctl restart --no-block( {_UNIT})+"),
    Line(r"systemctl start --no-block hyperpod-metrics\.timer"),
    Line(rf"systemctl stop hyperpod-metrics\.timer hyperpod-metrics\.target( {_UNIT})+"),
    # ip-route(8): with a user, as a socket of theirs would be sent.
    Line("ip -4 rule show priority 3"),
    Line(r"ip (-4 route get 169\.254\.169\.254|-6 route get fd00:ec2::254) uid 65534"),
    # nvidia-smi's `nvidia-smi -h`, dcgmi(1): NVIDIA's own words; fi_info(1); neuron-ls of AWS Neuron's tools.
    Line("nvidia-smi -q -x", (20,)),
    Line("nvidia-smi nvlink -s", (10,)),
    Line("dcgmi diag -r 1 -j", (40,)),
    Line("fi_info -p efa -t FI_EP_RDM", (20,)),
    Line("neuron-ls --json-output"),
    Line("hyperpod-efa-capabilities", (20,)),
    # python(1): apart from what users have installed, and without a trace.
    Line(r"python\S* -IB \S+/hyperpod_node/network/efa_capabilities\.py", (20,)),
    # AWS CLI Command Reference. The token's words are those of the image's kubeconfig.
    Line("aws eks get-token .+", (10,)),
    Line(
        rf"aws s3 cp --only-show-errors --region [a-z0-9-]+ {' '.join(aws_cli.LIMITS)} s3://\S+ (-|/\S+)",
        (60,),
    ),
    Line(f"aws fsx describe-file-systems {_OF_AWS}", ("aws",), _NO_PAGER),
    Line(rf"aws ssm get-parameter --name /hyperpod/\S+ {_OF_AWS}", ("aws",), _NO_PAGER),
    Line(rf"aws secretsmanager get-secret-value --secret-id arn:\S+ {_OF_AWS}", ("aws",), _NO_PAGER),
    Line(f"aws ecr get-authorization-token {_OF_AWS}", (60,), _NO_PAGER),
    Line(rf"aws secretsmanager get-secret-value --secret-id hyperpod/\S+ {_OF_AWS}", ("aws",), _NO_PAGER),
    Line(f"aws sts get-caller-identity {_OF_AWS}", ("aws",), _NO_PAGER),
    Line(
        rf"aws sts assume-role --role-arn arn:aws:iam::\d{{12}}:role/hyperpod/[a-z0-9-]+/[a-z0-9_-]+ "
        rf"--role-session-name hyperpod-[a-z0-9_-]+ {_OF_AWS}",
        ("aws",),
        _NO_PAGER,
    ),
    # chronyc(1): releases before 2.2 do not step the clock without -a. What asks a daemon has its answer at once.
    Line("chronyc -a makestep", (10,)),
    # munge(1), unmunge(1): each is asked again within their 20 s.
    Line("munge -n", (5,)),
    Line("unmunge", (5,)),
    # An image of some gigabytes, less than the 30 minutes that the unit has to start.
    Line(r"docker image inspect --format {{\.Id}} \S+"),
    Line(r"docker --config /\S+ pull --quiet \S+", (1500,)),
    # mkfs.ext4(8): a label has 16 bytes at most.
    Line(r"mkfs\.ext4 -q -L \S{1,16} -m 0 -E lazy_itable_init=1 /dev/\S+", (300,)),
    # lsblk(8): a device and what it is made of.
    Line(r"lsblk --noheadings --inverse --output MODEL /dev/\S+"),
    # blkid(8): -p looks at the device, and not at what was seen of it before.
    Line(r"blkid -p -s LABEL -o value /dev/\S+"),
    Line(r"mdadm --assemble /dev/md/\S+( /dev/\S+)+"),
    Line(r"mdadm --create /dev/md/\S+ --run --force --level=0 --raid-devices=\d+( /dev/\S+)+", (60,)),
    Line(r"chown -R [a-z]+:? /\S+"),
    # cp(1): "/." is what a folder has, and not the folder.
    Line(r"cp -r /\S+/\. /\S+"),
    Line(r"cp --archive --one-file-system /\S+/\. /\S+", (600,)),
    Line(r"mount -t (lustre|nfs) -o [a-z0-9_.,=-]+ \S+ /\S+", ("mount/2",)),
    Line(r"mount -o [a-z0-9_.,=-]+ \S+ /\S+", (60,)),
    # mariadb(1): --defaults-file is the first of all, or it is refused. What names a database loads a copy.
    Line("mariadb --batch --skip-column-names --binary-mode", (60,)),
    Line(r"mariadb --defaults-file=/\S+ --batch --skip-column-names --binary-mode"),
    Line(r"mariadb (--defaults-file=/\S+ )?--batch --skip-column-names --binary-mode \w+", (1800,)),
    Line(r"mariadb-dump --single-transaction --quick --result-file=/\S+ \w+", (1800,)),
    # On a fresh node's disk, which gives its blocks for the first time. With Slurm's headers.
    Line(r"dpkg (--configure -a|--install( /\S+\.deb)+|--remove( [a-z0-9.+-]+)+)", (120,)),
    Line(r"make -j4 -C /\S+ spank_pyxis\.so", (120,), {"CPPFLAGS": r"-I/\S+/include"}),
    Line(r"cc -O2 -shared -fPIC -I/\S+/include -o /\S+ /\S+", (60,)),
    Line(r"modprobe (lustre|kefalnd ipif_name=\w+|ksocklnd)", (60,)),
)
# Lines that are none of these. Threads swallow what is raised: who ends a test looks here.
STRANGE: list[str] = []


@cache
def _known(name: str) -> list[Line]:
    return [line for line in LINES if re.fullmatch(line.form.split(" ")[0], name)]


def check(host: FakeHost, args: Sequence[str], seconds: float, environment: Mapping[str, str]) -> None:
    """Complain, also in STRANGE, where a program of the table is asked in another way."""
    name = Path(args[0]).name
    said = " ".join((name, *args[1:]))
    known = _known(name)
    if known and not any(_fits(host, line, said, seconds, environment) for line in known):
        line = f"{said!r} within {seconds:g} s with {dict(environment)}"
        STRANGE.append(f"tests/lifecycle/words.py, which has what manuals allow, has no line for {line}")
        raise AssertionError(STRANGE[-1])


def _fits(host: FakeHost, line: Line, said: str, seconds: float, environment: Mapping[str, str]) -> bool:
    left = host.remaining()
    return (
        re.fullmatch(line.form, said, re.DOTALL) is not None
        and any(abs(seconds - min(_limit(host, one), left)) < 0.1 for one in line.seconds)
        and environment.keys() == line.environment.keys()
        and all(re.fullmatch(form, environment[name]) for name, form in line.environment.items())
    )


def _limit(host: FakeHost, one: float | str) -> float:
    if not isinstance(one, str):
        return one
    wait, _, parts = one.partition("/")
    return host.settings.timeouts[wait] / int(parts or 1)

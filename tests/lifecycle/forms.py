"""The words that a node's own programs are asked with: what their manual pages have of them, and what is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hyperpod_node import aws_cli

_OF_AWS = " ".join(("--region [a-z0-9-]+ --output json", *aws_cli.LIMITS))
# Each of these programs takes more, and the scripts ask for nothing more.
FORMS = {
    # AWS CLI Command Reference. The token's words are those of the image's kubeconfig.
    "aws": r"eks get-token .+|s3 cp --only-show-errors --region [a-z0-9-]+ "
    + " ".join(aws_cli.LIMITS)
    + r" s3://\S+ (-|/\S+)|(fsx describe-file-systems|ssm get-parameter --name /hyperpod/\S+|"
    + rf"secretsmanager get-secret-value --secret-id arn:\S+|ecr get-authorization-token) {_OF_AWS}",
    # chronyc(1): releases before 2.2 do not step the clock without -a.
    "chronyc": "-a makestep",
    "docker": r"image inspect --format {{\.Id}} \S+|--config /\S+ pull --quiet \S+",
    # mkfs.ext4(8): a label has 16 bytes at most.
    "mkfs.ext4": r"-q -L \S{1,16} -m 0 -E lazy_itable_init=1 /dev/\S+",
    # blkid(8): -p looks at the device, and not at what was seen of it before.
    "blkid": r"-p -s LABEL -o value /dev/\S+",
    "mdadm": r"--(assemble /dev/md/\S+|create /dev/md/\S+ --run --force --level=0 --raid-devices=\d+)( /dev/\S+)+",
    "chown": r"-R [a-z]+:? /\S+",
    # cp(1): "/." is what a folder has, and not the folder.
    "cp": r"(-r|--archive --one-file-system) /\S+/\. /\S+",
    "mount": r"(-t (lustre|nfs) )?-o [a-z0-9_.,=-]+ \S+ /\S+",
    # mariadb(1): --defaults-file is the first of all, or it is refused.
    "mariadb": r"(--defaults-file=/\S+ )?--batch --skip-column-names( \w+)?",
    "dpkg": r"--configure -a|--install( /\S+\.deb)+|--remove( [a-z0-9.+-]+)+",
    "modprobe": r"lustre|kefalnd ipif_name=\w+|ksocklnd",
    "munge": "-n",
    "unmunge": "",
}


# Seconds that a program may take, at least and at most, by its first words.
PATIENCE = {
    # What asks a daemon that runs has its answer at once, and each of munge's two is asked again within its 20 s.
    "chronyc": (1, 10),
    "munge": (1, 10),
    "unmunge": (1, 10),
    # On a fresh node's disk, which gives its blocks for the first time.
    "dpkg": (60, 300),
    "make": (60, 300),
    "cc": (60, 300),
    "modprobe": (60, 300),
    "mariadb-dump": (1800, 3600),
    # An image of some gigabytes, less than the 30 minutes that the unit has to start.
    "docker --config": (1200, 1799),
    # TimeoutStartSec of munged's drop-in, in which it may wait for the file system.
    "systemctl restart munge": (151, 300),
    # systemd-system.conf(5): a daemon has 90 s to end.
    "systemctl stop slurmctld": (91, 300),
    "systemctl stop slurmdbd": (91, 300),
    "systemctl restart slurmdbd": (91, 300),
}
# What a program's environment has besides: no pager, and no metadata without a session token (AWS CLI User Guide,
# "Environment variables"); where Slurm's headers are.
ENVIRONMENT = {
    r"aws (?!eks|s3)": r"AWS_PAGER= AWS_EC2_METADATA_V1_DISABLED=true",
    r"make ": r"CPPFLAGS=-I/\S+/include",
}


def check(args: Sequence[str], timeout: float, env: Mapping[str, str]) -> None:
    """Fail where a program is asked in another way than it should be, whatever it is that answers for it."""
    name, words = Path(args[0]).name, " ".join(args[1:])
    form = FORMS.get(name)
    assert form is None or re.fullmatch(form, words), f"no such words: {name} {words}"
    for begin, (least, most) in PATIENCE.items():
        if f"{name} {words} ".startswith(f"{begin} "):
            assert least <= timeout <= most, f"{name} {words} has {timeout} s"
    given = " ".join(f"{key}={value}" for key, value in env.items())
    for begin, wanted in ENVIRONMENT.items():
        if re.match(begin, f"{name} {words}"):
            assert re.fullmatch(wanted, given), f"{name} {words} has {given}"

"""The words that a node's own programs are asked with: what their manual pages have of them, and what is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    "munge": "-n",
    "unmunge": "",
}


def check(args: Sequence[str]) -> None:
    """Fail where a program is asked in words of another form, whatever it is that answers for it."""
    form = FORMS.get(Path(args[0]).name)
    assert form is None or re.fullmatch(form, " ".join(args[1:])), f"no such words: {' '.join(args)}"

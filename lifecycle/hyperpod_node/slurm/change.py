"""``hyperpod-slurm-config``: the stack's own lines of slurm.conf on a running controller, tried before their use."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Optional, Sequence, Tuple

from ..facts import node_record
from ..facts.identity import read_instances
from ..facts.model import ConfFile
from ..host import aws_cli
from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..host.settings import Settings
from . import configure, extra_conf, trial

# How long slurmctld may take to answer after it has read its configuration again.
ANSWERS_SECONDS = 30.0


def apply(host: Host, files: Tuple[ConfFile, ...]) -> bool:
    """Use these files from now on. Return True if they differ. Raises StepError, and leaves everything as it was."""
    record, before = node_record.read(host), extra_conf.in_use(host)
    cluster_id = record.parameters.cluster_id
    if record.group.role != "controller":
        raise StepError("only the controller has slurm.conf")
    if files == before:
        return False
    try:
        why = trial.refusal(host, record, read_instances(host), files)
    except trial.CannotTry as unknown:
        raise StepError(f"the lines could not be tried: {unknown}") from None
    if why:
        raise StepError(why)
    try:
        _use(host, files, cluster_id)
    except StepError as error:
        extra_conf.use(host, before, cluster_id)
        configure.configure_again(host)
        host.run("systemctl", "restart", "slurmctld", timeout=120)
        raise StepError(f"{error}; the previous lines were restored") from None
    configure.publish(host, record)
    return True


def _use(host: Host, files: Tuple[ConfFile, ...], cluster_id: str) -> None:
    extra_conf.use(host, files, cluster_id)
    configure.configure_again(host)
    host.run("scontrol", "reconfigure", timeout=ANSWERS_SECONDS)

    def answers() -> bool:
        if host.run("scontrol", "ping", check=False, timeout=10).code == 0:
            return True
        raise NotYet("it does not answer")

    host.poll("slurmctld did not come back", answers, ANSWERS_SECONDS)


def fetched(host: Host, uri: str, region: str) -> Tuple[ConfFile, ...]:
    """Return the files that are in the lifecycle bucket now. Raises StepError."""
    done = aws_cli.copied(host, uri, region, "-")
    found = extra_conf.parse(done.out, uri)
    if found.cluster_id != node_record.read(host).parameters.cluster_id:
        raise StepError(f"{uri} is of the cluster {found.cluster_id}")
    return found.files


def parser() -> argparse.ArgumentParser:
    """Return the options of ``hyperpod-slurm-config``."""
    found = argparse.ArgumentParser(prog="hyperpod-slurm-config", description="The stack's lines of slurm.conf.")
    found.add_argument("uri", nargs="?", help="the files in the lifecycle bucket; none removes all")
    found.add_argument("--region", help="the bucket's region")
    found.add_argument("--dry-run", action="store_true", help="print what would be used, and change nothing")
    return found


def main(words: Optional[Sequence[str]] = None) -> int:
    """Apply the files of the bucket, and print as JSON what is used then, and whether it changed."""
    asked = parser().parse_args(words)
    host = Host(Settings.from_environment())
    os.umask(0o022)
    host.begin(240)
    try:
        files = fetched(host, asked.uri, asked.region) if asked.uri else ()
        changed = files != extra_conf.in_use(host) if asked.dry_run else apply(host, files)
    except (StepError, OSError) as error:
        print(f"hyperpod-slurm-config: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"files": [one.name for one in files], "digest": extra_conf.digest(files), "changed": changed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

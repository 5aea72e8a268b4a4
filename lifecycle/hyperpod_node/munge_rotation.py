"""``hyperpod-munge-key``: another MUNGE key for the whole cluster, while jobs run.

munged has one key, which it reads when it starts (munged(8)), and Slurm asks it anew for each message, so that none of
Slurm's daemons has to start again for a new key. There is no time in which two keys are good: while the nodes change,
those with different keys refuse each other. So the change is prepared on all nodes, each of which then waits for the
key to be published, and all change within about two seconds. slurmctld is stopped meanwhile, as for an
upgrade (Slurm's Quick Start Administrator Guide, "Upgrades": running jobs go on without it): it launches nothing that
a node would refuse, takes no node for lost, and what ends meanwhile is reported when it answers again. slurmdbd asks
for a credential only when a connection is opened.

From when the key is published nobody else is needed: each node changes by itself, and who was off takes the key before
its munged starts (take-munge-key.sh). A rotation that was cut off is done again from the start, with another key.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import Dict, List, Optional, Sequence

from . import munge, slurm_configure
from .errors import NotYet, StepError
from .host import Host
from .settings import Settings

# Seconds for which a prepared node waits for the key.
WAITS = 900.0
# Seconds for the nodes to change.
CHANGES = 30.0
# Seconds until slurmctld answers, and then until every node does.
ANSWERS = 120.0
UNIT = "hyperpod-munge-key"


def private(host: Host) -> str:
    """Root's own part of the shared file system."""
    return f"{slurm_configure.facts(host)['shared']}/private"


def prepare(host: Host) -> Dict[str, object]:
    """Make the next key, which nobody uses yet."""
    where = private(host)
    host.folder(f"{where}/munge.nodes", mode=0o700)
    for name in _told(host):
        host.remove(f"{where}/munge.nodes/{name}")
    host.write_bytes(_next(host), os.urandom(munge.KEY_BYTES), mode=0o600)
    return {"digest": munge.digest(host, _next(host))}


def wait(host: Host, wanted: str) -> Dict[str, object]:
    """Leave a process here that changes the key as soon as it is published."""
    if munge.digest(host, _next(host)) != wanted:
        raise StepError("the shared file system has another next key: somebody else replaces it, too")
    host.run("systemctl", "stop", UNIT, check=False)
    command = f"{host.settings.install_folder}/bin/hyperpod-munge-key"
    host.run("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", command, "follow", wanted)
    _tell(host, "waits")
    return {}


def follow(host: Host, wanted: str) -> Dict[str, object]:
    """Wait for the key to be published, and use it."""
    name = munge.published(private(host))

    def there() -> bool:
        if munge.digest(host, name) == wanted:
            return True
        raise NotYet("it was not")

    host.poll("the key was not published", there, WAITS, first=0.5, most=1.0)
    # It takes the key before it starts.
    host.run("systemctl", "restart", "munge", timeout=180)
    munge.accepts_its_own(host, 20.0)
    if munge.digest(host) != wanted:
        raise StepError(f"munged has started without the key of {name}")
    _tell(host, wanted)
    return {}


def switch(host: Host, wanted: str) -> Dict[str, object]:
    """Publish the key, while slurmctld is stopped. What is told: the nodes that do not use it, or do not answer."""
    where = private(host)
    if munge.digest(host, _next(host)) != wanted:
        raise StepError("the shared file system has another next key: somebody else replaces it, too")
    nodes = sorted(_told(host))
    host.run("systemctl", "stop", "slurmctld", timeout=120)
    try:
        host.folder(f"{where}/munge", mode=0o700)
        host.path(_next(host)).replace(host.path(munge.published(where)))
        munge.publish_digest(host, where, wanted)
        late = _late(host, nodes, wanted)
    finally:
        host.run("systemctl", "start", "slurmctld", timeout=320)
    return {"late": late, "silent": _silent(host, [name for name in nodes if name not in late])}


def _late(host: Host, nodes: Sequence[str], wanted: str) -> List[str]:
    """The nodes that do not have the key in time."""
    late = list(nodes)

    def all_have() -> bool:
        known = _told(host)
        late[:] = [name for name in nodes if known.get(name) != wanted]
        return not late

    with contextlib.suppress(StepError):
        host.poll("", all_have, CHANGES)
    return late


def _silent(host: Host, nodes: Sequence[str]) -> List[str]:
    """Those of the nodes that slurmctld gets no answer from: sinfo(1) marks their state with an asterisk."""
    silent: List[str] = ["slurmctld"]

    def all_answer() -> bool:
        shown = host.run("sinfo", "-h", "-N", "-o", "%n %T", check=False, timeout=20)
        if shown.code != 0:
            raise NotYet(shown.reason)
        states = dict(line.split() for line in shown.out.splitlines())
        silent[:] = [name for name in nodes if states.get(name, "").endswith("*")]
        return not silent

    with contextlib.suppress(StepError):
        host.poll("", all_answer, ANSWERS, first=0.5, most=2.0)
    return silent


def _next(host: Host) -> str:
    return f"{private(host)}/munge.next"


def _tell(host: Host, text: str) -> None:
    host.write(f"{private(host)}/munge.nodes/{host.hostname()}", text + "\n", mode=0o600)


def _told(host: Host) -> Dict[str, str]:
    """What each prepared node has told."""
    folder = f"{private(host)}/munge.nodes"
    names = [path.name for path in host.path(folder).iterdir() if path.name[0] != "."]
    return {name: (host.read(f"{folder}/{name}") or "").strip() for name in names}


PARTS = {"wait": wait, "follow": follow, "switch": switch}


def main(words: Optional[Sequence[str]] = None) -> int:
    """Do one part of it, and print what came of it as JSON. Keys are never printed, only their SHA-256."""
    parser = argparse.ArgumentParser(prog=UNIT, description="Another MUNGE key for the cluster.")
    parser.add_argument("part", choices=("prepare", *PARTS))
    parser.add_argument("digest", nargs="?", default="", help="of the next key")
    asked = parser.parse_args(words)
    host = Host(Settings.from_environment())
    os.umask(0o022)
    try:
        done = prepare(host) if asked.part == "prepare" else PARTS[asked.part](host, asked.digest)
    except (StepError, OSError, KeyError) as error:
        print(f"{UNIT}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())

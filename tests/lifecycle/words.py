"""What the nodes' scripts may say to Slurm, systemd and the tools of a node, whatever a test lets those answer.

A fake that a test puts in place looks at the words it is about. These are all of a line's words, as its manual has
them, how many seconds the command gets, and what it finds in its environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.lifecycle.rig import FakeHost


class Line(NamedTuple):
    """A command line by its form. ``seconds``: its limits, each a number or a wait's name (settings.TIMEOUTS)."""

    form: str
    seconds: tuple[float | str, ...] = (30,)
    environment: Mapping[str, str] = {}


# A worker has no slurm.conf of its own.
_CLIENT = {"SLURM_CONF": r".*/etc/hyperpod/slurm-client\.conf"}
# Times as numbers, and arrays with all of their tasks (sinfo(1), squeue(1)).
_PLAIN = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
# Debian's script for System V would have systemd read everything again (systemd-sysv-install).
_LINKS = {"SYSTEMCTL_SKIP_SYSV": "1"}
_COLUMNS = "NodeList:|,PartitionName:|,StateComplete:|,CPUsState:|,Gres:|,GresUsed:|,Memory:|,AllocMem:|,FreeMem:|"
_OF_JOBS = "JobArrayID:|,State:|,Partition:|,NumCPUs:|,EligibleTime:|,Reason:|"
_NODE = r"NodeName=\S+"
_DAEMONS = "slurmctld|slurmd|slurmdbd|munge|chronyd?|mariadb|ssh|sshd|containerd|kubelet"
_OURS = r"hyperpod-[a-z-]+(@(node|lustre))?(\.(service|timer|target))?"
_UNIT = f"({_DAEMONS}|{_OURS})"

LINES: Sequence[Line] = (
    # scontrol(1); "-o" is a node on one line.
    Line("scontrol ping", (10,)),
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
    Line(r"scontrol write batch_script \d+ -", (10,)),
    # sinfo(1), squeue(1), sdiag(1), scancel(1): no header, every partition, a line for each node.
    Line("sinfo -h"),
    Line(r"sinfo -h -R -o %N\|%E"),
    Line("sinfo -h -N -o %n %T", (20,)),
    Line("sinfo -h -N -O NodeList:128,StateLong:32,Reason:64", (10,)),
    Line("sinfo -h -N -t alloc,mix,comp,down -O NodeList:64,NodeAddr:64,StateLong:32,Reason:128", (10,)),
    Line(f"sinfo -h -a -N -O {re.escape(_COLUMNS)}", (10,), _PLAIN),
    Line(r"squeue -h -a -o %A\|%T\|%r\|%V", (10,)),
    Line(r"squeue -h -w \S+ -o %A\|%N", (10,)),
    Line(f"squeue -h -a -t all -O {re.escape(_OF_JOBS)}", (10,), _PLAIN),
    Line("sdiag", (10,), _PLAIN),
    Line(r"scancel --user=[a-z][a-z0-9_-]*"),
    # ssh(1): no question, and no wait for a node that is gone; the words of slurm/end-job.sh.
    Line(r"ssh -o BatchMode=yes -o ConnectTimeout=2 \S+ (rejoin|\d+)", (15,)),
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
    Line(f"systemctl disable --no-reload --now( {_UNIT})+", (30,), _LINKS),
    Line(r"systemctl enable --now var-lib-(containerd|kubelet)\.mount", (60,)),
    Line(f"systemctl reset-failed {_UNIT}"),
    Line(f"systemctl start (--no-block )?{_UNIT}", ("slurm",)),
    Line("systemctl start ssh(d)?"),
    Line("systemctl reload ssh(d)?"),
    Line(f"systemctl restart {_UNIT}", ("slurm",)),
    Line("systemctl start slurmctld", (320,)),
    # systemd-system.conf(5): a daemon has 90 s to end.
    Line("systemctl (stop|restart) (slurmctld|slurmdbd)", (120,)),
    Line("systemctl restart munge", (180,)),
    Line("systemctl (stop|restart) (containerd|kubelet)", (120,)),
    Line("systemctl stop hyperpod-munge-key"),
    Line(rf"systemctl restart --no-block( {_UNIT})+"),
    Line(r"systemctl start --no-block hyperpod-metrics\.timer"),
    Line(rf"systemctl stop hyperpod-metrics\.timer hyperpod-metrics\.target( {_UNIT})+"),
    # nvidia-smi's `nvidia-smi -h`, dcgmi(1): NVIDIA's own words; fi_info(1); neuron-ls of AWS Neuron's tools.
    Line("nvidia-smi -q -x", (20,)),
    Line("nvidia-smi nvlink -s", (10,)),
    Line("dcgmi diag -r 1 -j", (40,)),
    Line("fi_info -p efa -t FI_EP_RDM", (20,)),
    Line("neuron-ls --json-output"),
    Line("hyperpod-efa-capabilities", (20,)),
    # python(1): apart from what users have installed, and without a trace.
    Line(r"python\S* -IB \S+/hyperpod_node/efa_capabilities\.py", (20,)),
)
_BY_NAME = {
    name: [line for line in LINES if re.match(rf"{name}\b", line.form)]
    for name in {re.split(r"[ \\]", line.form)[0] for line in LINES}
}


def check(host: FakeHost, args: Sequence[str], seconds: float, environment: Mapping[str, str]) -> None:
    """Complain, also to the world's own list, of a line that none of these is. Threads swallow what is raised."""
    name = Path(args[0]).name
    known = _BY_NAME.get("python" if name.startswith("python") else name)
    if known is None:
        return
    said = " ".join((name, *args[1:]))
    if not any(_fits(host, line, said, seconds, environment) for line in known):
        host.world.strange.append(f"{said!r} within {seconds:g} s with {dict(environment)}")
        raise AssertionError(host.world.strange[-1])


def _fits(host: FakeHost, line: Line, said: str, seconds: float, environment: Mapping[str, str]) -> bool:
    limits = (host.settings.timeouts[one] if isinstance(one, str) else one for one in line.seconds)
    left = host.remaining()
    return (
        re.fullmatch(line.form, said, re.DOTALL) is not None
        and any(abs(seconds - min(limit, left)) < 0.1 for limit in limits)
        and environment.keys() == line.environment.keys()
        and all(re.fullmatch(form, environment[name]) for name, form in line.environment.items())
    )

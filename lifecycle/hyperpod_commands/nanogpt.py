"""``run-nanogpt [nodes] [gpus]``: trains a small character-level GPT on the workers, in a batch job.

When a node is lost, Slurm requeues the job, which continues from its last checkpoint on the shared file system.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from hyperpod_node.facts.model import Group

from .cluster import LIB, Trouble, as_ubuntu_in_session, record, run, say, worker_group

SCRIPT = """#!/bin/bash
#SBATCH --job-name=nanogpt
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={per_node}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={log}{extra}
# Rank, size and address come from Slurm. The port changes with every restart, so an old socket cannot block it;
# from 32768 on Linux gives ports to whoever connects (ip_local_port_range).
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + (SLURM_JOB_ID * 7 + ${{SLURM_RESTART_COUNT:-0}}) % 12000))
export MASTER_ADDR MASTER_PORT PYTHONUNBUFFERED=1
# HyperPod's auto-resume: it replaces a faulty node of this job and starts the job again.
auto_resume=()
if [[ -d /opt/sagemaker_cluster ]]; then auto_resume=(--auto-resume=1); fi
srun "${{auto_resume[@]}}" --mpi=none --kill-on-bad-exit=1 {command}
code=$?
# When a node is lost, the other ranks fail first. Exiting now would end the job; Slurm requeues it a little later.
if ((code)); then bash {lib}/training/wait_for_requeue.sh; fi
exit $code
"""
# The trainer's own options, passed on if given. `nanogpt.py --help` explains them.
TRAINER: Dict[str, type] = {
    "--batch": int, "--block": int, "--layers": int, "--heads": int, "--embed": int, "--rate": float, "--seed": int,
    "--threads": int, "--log-every": int, "--data": str,
}  # fmt: skip
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "NODE_FAIL")


def main() -> int:
    """Submit the job and, unless detached, follow it."""
    options = _options().parse_args()
    as_ubuntu_in_session("run-nanogpt")
    own = record()
    group = worker_group(own, options.partition)
    per_node = options.gpus or max(1, group.accelerators if group.accelerator == "gpu" else 1)
    out = _folder(options.out, f"{own.parameters.fsx_mount}/checkpoints/nanogpt-{time.strftime('%Y%m%d-%H%M%S')}")
    log = out / "train.log"
    # The log of an earlier run has been shown already.
    seen = log.stat().st_size if log.exists() else 0
    job = _submit(options, group, per_node, out, log)
    say(f"job {job}: {options.nodes} nodes x {per_node}, log {log}")
    if options.detach:
        if options.json:
            print(json.dumps({"job": job, "log": str(log), "out": str(out)}))
        return 0
    state = _follow(job, log, seen)
    return _report(options, job, state, out)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run-nanogpt", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("nodes", nargs="?", type=int, default=2, help="number of workers (default 2)")
    parser.add_argument("gpus", nargs="?", type=int, default=0, help="processes per worker (default: one per GPU)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints (default 50)")
    parser.add_argument(
        "--out", help="checkpoint folder; training resumes from its newest checkpoint (default: a new one on /fsx)"
    )
    parser.add_argument("--detach", action="store_true", help="return once the job is submitted")
    parser.add_argument("-p", "--partition")
    parser.add_argument("--python", help="interpreter with PyTorch on the workers (default: the first one found)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, everything else to stderr")
    trainer = parser.add_argument_group("options of the trainer")
    for name, kind in TRAINER.items():
        trainer.add_argument(name, type=kind, default=argparse.SUPPRESS)
    return parser


def _folder(asked: Optional[str], new: str) -> Path:
    """Return the checkpoint folder: the requested one, or a new one. Other users could guess a new one's name."""
    out = Path(os.path.realpath(asked or new))
    out.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        _closed(out)
    try:
        out.mkdir()
    except FileExistsError:
        if not asked:
            raise Trouble(f"{out} already exists; try again, or choose a folder with --out") from None
    return out


def _closed(out: Path) -> None:
    """Refuse a folder that others may write to: they could put links or a forged checkpoint there for root's job.

    A parent with the sticky bit, such as /fsx/checkpoints, is accepted: others cannot replace root's files in it.
    """
    for folder in (out, *out.parents):
        if folder == out and not folder.exists():
            continue
        found = folder.stat()
        sticky = folder != out and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky):
            raise Trouble(
                f"users other than root may write to {folder}, and this job would run as root there; "
                "run it as the folder's owner (sudo -u USER run-nanogpt), or choose another folder with --out"
            )


def _submit(options: argparse.Namespace, group: Group, per_node: int, out: Path, log: Path) -> str:
    directives = []
    partition = options.partition or group.partition
    if partition:
        directives.append(f"--partition={partition}")
    if group.accelerator == "gpu":
        directives.append(f"--gres=gpu:{per_node}")
    given = {name: getattr(options, name[2:].replace("-", "_"), None) for name in TRAINER}
    arguments = {"--steps": options.steps, "--save-every": options.save_every, **given}
    words = [word for name, value in arguments.items() if value is not None for word in (name, str(value))]
    python = [options.python] if options.python else ["bash", f"{LIB}/training/with_torch.sh"]
    script = SCRIPT.format(
        nodes=options.nodes,
        per_node=per_node,
        log=shlex.quote(str(log)),
        extra="".join(f"\n#SBATCH {shlex.quote(directive)}" for directive in directives),
        command=_quoted([*python, f"{LIB}/training/nanogpt.py", "--out", str(out), *words]),
        lib=LIB,
    )
    # sbatch reads the script from standard input, where nobody can change it.
    return run(["sbatch", "--parsable", f"--chdir={out}"], stdin=script).strip().split(";")[0]


def _quoted(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _state(job: str) -> str:
    try:
        shown = run(["scontrol", "show", "job", job, "-o"], timeout=30)
    except Trouble:
        return "UNKNOWN"
    return next((word[9:] for word in shown.split() if word.startswith("JobState=")), "UNKNOWN")


def _follow(job: str, log: Path, position: int) -> str:
    """Show the log as it grows, until the job ends. Return its last state."""
    last, unknown = "", 0
    while True:
        state = _state(job)
        position = _show(log, position)
        if state != last and state in ("PENDING", "RUNNING"):
            say(f"[{time.strftime('%H:%M:%S')}] job {job} {state.lower()}")
        unknown = unknown + 1 if state == "UNKNOWN" else 0
        if state in ENDED or unknown > 20:
            time.sleep(0.2)
            _show(log, position)
            return state
        last = state
        time.sleep(0.3)


def _show(log: Path, position: int) -> int:
    """Show the complete lines after a position; return the next position."""
    try:
        with log.open("rb") as file:
            file.seek(position)
            lines = file.read()
    except FileNotFoundError:
        return position
    whole = lines[: lines.rfind(b"\n") + 1]
    for line in whole.decode("utf-8", "replace").splitlines():
        say(line)
    return position + len(whole)


def _report(options: argparse.Namespace, job: str, state: str, out: Path) -> int:
    result: Optional[Dict[str, Any]] = None
    with contextlib.suppress(OSError, ValueError):
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    reasons = []
    if state != "COMPLETED":
        reasons.append(f"the job is {state}")
    if result is None:
        reasons.append("the trainer wrote no result")
    elif not result["last_loss"] < result["first_loss"]:
        reasons.append(f"the loss did not fall: {result['first_loss']:.4f} to {result['last_loss']:.4f}")
    passed = not reasons
    if options.json:
        print(
            json.dumps({"job": job, "state": state, "passed": passed, "reasons": reasons, "result": result}, indent=2)
        )
        return 0 if passed else 1
    if result:
        say(f"{'iterations':>12} {'loss at 0':>10} {'last loss':>10} {'ms/iter':>8} {'backend':>8} {'ranks':>6}")
        say(
            f"{result['steps']:>12} {result['first_loss']:>10.4f} {result['last_loss']:>10.4f} "
            f"{result['ms_per_step']:>8.0f} {result['backend']:>8} {result['world_size']:>6}"
        )
        say(f"checkpoint {result['checkpoint']}")
    for reason in reasons:
        say(f"  {reason}")
    if not passed:
        say("Look at:")
        say(f"  - {out}/train.log")
        say("  - sinfo -R and /fsx/.hyperpod/nodes/*.json: nodes that are down or came up degraded")
    say("PASS" if passed else "FAIL")
    return 0 if passed else 1


def entry() -> int:
    """Run the command; report a failure in one line."""
    try:
        return main()
    except Trouble as trouble:
        print(f"run-nanogpt: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())

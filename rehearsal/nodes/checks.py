"""Checks of a booted cluster. Each one runs on the nodes, like a user or a job would."""

import json
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..checks import CheckFailed, require
from .cluster import Cluster
from .hosts import Host
from .machine import Machine

# nccl-tests' columns.
SWEEP_COLUMNS = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
_MOST_PEERS = 7
# Ranks share the machine's few cores, so the model is small and threads do not wait for each other.
TRAINER = "--threads 1 --layers 2 --embed 64 --batch 4"
THREADS = "export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1;"
# Settings that are best left to NCCL.
NEVER_SET = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_TREE_THRESHOLD")
_HELLO = Path(__file__).parent / "stubs/mpi_hello.py"


Act = Callable[[Cluster], str]


def output(host: Host, command: str, *, timeout: float = 60.0, user: str = "root") -> str:
    """A command's output. Raises CheckFailed with the end of its output if it fails."""
    done = host.run(command, timeout=timeout, user=user)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = "no end in time" if done.returncode == 124 else words[-1] if words else "no output"
        raise CheckFailed(f"`{command.splitlines()[0][:60]}` on {host.name}: {why} (code {done.returncode})")
    return done.stdout


def scripts_succeeded(cluster: Cluster) -> str:
    """Every lifecycle script exited with 0."""
    failed = [f"{name}: {run.last_line}" for name, run in cluster.scripts.items() if run.code != 0]
    require(not failed, "; ".join(failed))
    return f"{len(cluster.scripts)} scripts"


def all_idle(cluster: Cluster) -> str:
    """Slurm knows every worker and reports it idle."""
    lines = output(cluster.controller, "sinfo -h -N -o '%n %t %E' | sort -u").splitlines()
    states = {name: (state, why) for name, state, why in (line.split(None, 2) for line in lines)}
    wanted = {host.hostname for host in cluster.workers}
    require(set(states) == wanted, f"Slurm has {', '.join(sorted(states))}, not {', '.join(sorted(wanted))}")
    busy = [f"{name} is {state} ({why})" for name, (state, why) in states.items() if state != "idle"]
    require(not busy, "; ".join(busy))
    return f"{len(states)} workers idle"


def hostname_everywhere(cluster: Cluster) -> str:
    """``srun hostname`` works from the controller and from every login node."""
    wanted = sorted(host.hostname for host in cluster.workers)
    for host in [cluster.controller, *cluster.of_role("login")]:
        done = host.run(f"srun -N {len(wanted)} hostname")
        found = sorted(done.stdout.split())
        require(done.returncode == 0 and found == wanted, f"from {host.name}: {' '.join(found) or done.stderr.strip()}")
    return " ".join(wanted)


def ssh_between_all(cluster: Cluster) -> str:
    """Every node reaches workers by ssh as ubuntu, without a password prompt or a host key question.

    In a large cluster every node tries only the next few. The controller's root may end jobs on workers, nothing else.
    """
    names = [host.hostname for host in cluster.workers]
    loop = (
        "for h in {}; do ssh -o BatchMode=yes -o ConnectTimeout=5 $h hostname </dev/null 2>&1 || echo $h failed; done"
    )

    def one(host: Host) -> tuple[int, list[str]]:
        first = names.index(host.hostname) + 1 if host.hostname in names else 0
        others = [name for name in names[first:] + names[:first] if name != host.hostname][:_MOST_PEERS]
        said = output(host, loop.format(" ".join(others)), user="ubuntu").splitlines()
        return len(others), [f"{host.name}: {line}" for line in said if line not in others] or others[len(said) :]

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(one, cluster.hosts))
    troubles = [trouble for _, found in done for trouble in found]
    require(not troubles, "; ".join(troubles[:3]))
    output(cluster.controller, f"ssh -o BatchMode=yes -o ConnectTimeout=5 {names[0]} 2147483647")
    more = cluster.controller.run(f"ssh -o BatchMode=yes -o ConnectTimeout=5 {names[0]} id")
    require(more.returncode == 2 and not more.stdout, f"{names[0]} answers root: {more.stdout or more.stderr}")
    return f"{sum(count for count, _ in done)} logins"


_ALL_KEYS = """
for key in /root/.ssh/* /home/*/.ssh/* /fsx/ubuntu/.ssh/* /fsx/.hyperpod/private/*/*; do
  grep -qs PRIVATE "$key" || continue
  echo key
  for login in {logins}; do
    ssh -F none -i "$key" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no \\
      -o UserKnownHostsFile=/dev/null "$login" 'echo in' </dev/null 2>/dev/null | sed "s|^in|$key lets in $login|"
  done
done
"""


def ssh_from_a_worker(cluster: Cluster) -> str:
    """Root on a worker finds no key that opens the controller, a login node, or root on any node."""
    worker, heads = cluster.workers[0], [cluster.controller, *cluster.of_role("login")]
    # On a shared home folder, root of every node can read the keys. Where the image sets up ubuntu's, it always is.
    settings = cluster.stack.config.settings
    users = ["root"] if settings.fsx.own_home or settings.slurm.by_image else ["root", "ubuntu"]
    logins = [f"{user}@{host.address}" for host in heads for user in users]
    logins += [f"root@{host.address}" for host in cluster.workers[1:2]]
    said = output(worker, _ALL_KEYS.format(logins=" ".join(logins)), timeout=120).splitlines()
    opened = [line for line in said if line != "key"]
    require(not opened, "; ".join(opened))
    require("key" in said, f"{worker.name} has no key at all")
    return f"{said.count('key')} keys, {len(logins)} logins refused"


def ssh_from_outside(cluster: Cluster) -> str:
    """Every node refuses a stranger in the VPC who has a key of their own."""
    key = cluster.sandbox.path("outsider")
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, capture_output=True)
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=5"]
    base = ["nsenter", "-t", str(cluster.sandbox.pid), "-n", "ssh", "-F", "/dev/null", "-i", str(key)]
    for host in cluster.hosts:
        for user in ("root", "ubuntu"):
            flags = [word for option in options for word in ("-o", option)]
            done = subprocess.run(
                [*base, *flags, f"{user}@{host.address}", "true"],
                capture_output=True,
                text=True,
                env=cluster.sandbox.environment,
                stdin=subprocess.DEVNULL,
            )
            require(done.returncode, f"{host.name} let an outsider in as {user}")
            require("Permission denied" in done.stderr, f"{host.name} did not answer: {done.stderr.strip()[-80:]}")
    return f"{len(cluster.hosts)} nodes refuse"


def expected_transport(machine: Machine) -> str:
    """The designed transport: RDMA only if both the catalogue and the device have it."""
    if not machine.efa_devices or not machine.kind.accelerator:
        return "tcp"
    return "efa-rdma" if machine.kind.rdma_read else "efa-sendrecv"


def expected_environment(machine: Machine) -> dict[str, str | None]:
    """The variables that a job must have on such a worker; None if it must not have the variable."""
    transport, kind = expected_transport(machine), machine.kind
    wanted: dict[str, str | None] = dict.fromkeys(NEVER_SET)
    if not kind.accelerator:
        return wanted
    wanted["FI_PROVIDER"] = "efa" if transport != "tcp" else None
    rdma = {"efa-rdma": "1", "efa-sendrecv": "0", "tcp": None}
    wanted["FI_EFA_USE_DEVICE_RDMA"] = rdma[transport]
    wanted["FI_EFA_FORK_SAFE"] = "1"
    if kind.accelerator == "gpu":
        # Which buffers are right, the plugin for EFA knows (aws-ofi-nccl, doc/efa-env-var.md).
        wanted |= {"NCCL_BUFFSIZE": None, "NCCL_P2P_NET_CHUNKSIZE": None, "NCCL_DEBUG": "WARN"}
    else:
        wanted["NEURON_RT_NUM_CORES"] = str(kind.neuron_cores)
    return wanted


def job_limits(cluster: Cluster) -> str:
    """A job may pin memory and open files as slurmd may, however little the shell may that submits it."""
    little = {"64", "256"}
    asked = "ulimit -S -l 64 -n 256; srun -N {} bash -c 'ulimit -S -l; ulimit -S -n' | sort -u"
    found = output(cluster.controller, asked.format(len(cluster.workers))).split()
    require(found and not little & set(found), f"jobs have the limits {found}, of the shell")
    return ", ".join(found)


def job_environment(cluster: Cluster) -> str:
    """A job's environment on the workers matches the catalogue and the devices present."""
    text = output(
        cluster.controller, f'srun -N {len(cluster.workers)} -l bash -c \'hostname; env -0 | tr "\\n\\0" " \\n"\''
    )
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        task, _, rest = line.partition(": ")
        key, separator, value = rest.partition("=")
        if separator:
            found.setdefault(task, {})[key] = value
        else:
            found.setdefault(task, {})[""] = rest
    transports = _transports(cluster)
    by_name = {values[""]: values for values in found.values()}
    for host in cluster.workers:
        values, transport = by_name.get(host.hostname, {}), expected_transport(host.machine)
        require(
            transports.get(host.name) == transport, f"{host.name} says {transports.get(host.name)}, not {transport}"
        )
        for key, wanted in expected_environment(host.machine).items():
            require(values.get(key) == wanted, f"{host.name}: {key} is {values.get(key)}, not {wanted}")
    kinds = {f"{host.machine.kind.name} {expected_transport(host.machine)}" for host in cluster.workers}
    return ", ".join(sorted(kinds))


def _transports(cluster: Cluster) -> dict[str, str]:
    """The transports that the workers chose, from their own summaries."""
    texts = {host.name: host.read("/var/log/hyperpod/summary.json") for host in cluster.workers}
    return {name: str(json.loads(text).get("transport")) for name, text in texts.items() if text}


def mpi_hello(cluster: Cluster) -> str:
    """An MPI program runs on every worker, and all ranks sum their numbers."""
    nodes = len(cluster.workers)
    cluster.shared("mpi_hello.py").write_bytes(_HELLO.read_bytes())
    command = (
        f"salloc -Q -N {nodes} --ntasks-per-node=1 /opt/amazon/openmpi/bin/mpirun -np {nodes} "
        "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0 /usr/bin/python3 /fsx/mpi_hello.py"
    )
    said = output(cluster.controller, f"cd; {command}", timeout=60, user="ubuntu")
    lines = [line for line in said.splitlines() if line.startswith("rank ")]
    wanted = {f"rank {rank} of {nodes}, sum {nodes * (nodes - 1) // 2}" for rank in range(nodes)}
    require({line.split(" on ")[0] for line in lines} == wanted, f"{len(lines)} of {nodes} ranks: {lines[:2]}")
    return f"{nodes} ranks"


def collective_sweep(cluster: Cluster) -> str:
    """``run-nccl-test``: a gloo all-reduce over all workers, printed in nccl-tests' columns, has no wrong value.

    Bandwidth is not judged: a bridge on this machine says nothing about the instance type's network.
    """
    options = "--backend gloo -b 8 -e 4M -n 5 --threshold 0 --json"
    done = cluster.controller.run(f"{THREADS} run-nccl-test {len(cluster.workers)} 1 all_reduce {options}", timeout=120)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise CheckFailed(f"code {done.returncode}: {done.stderr.strip()[-120:]}") from None
    require(done.returncode == 0 and result["passed"], f"code {done.returncode}: {'; '.join(result['reasons'])}")
    rows = result["rows"]
    require(rows and rows[0]["size"] == 8 and rows[-1]["size"] == 4 << 20, f"{len(rows)} sizes")
    require(result["wrong"] == 0, f"wrong values: {result['wrong']}")
    heads = [line.lstrip("# ").split() for line in done.stderr.splitlines()]
    require(SWEEP_COLUMNS in heads, f"no line with the columns {' '.join(SWEEP_COLUMNS)}")
    peak = max(float(row["busbw"]) for row in rows)
    # A single rank sends nothing.
    require(peak > 0 or len(cluster.workers) == 1, "no bandwidth")
    return f"{len(rows)} sizes, peak busbw {peak:.2f} GB/s"


def training(cluster: Cluster) -> str:
    """``run-nanogpt``: 200 steps on all workers; the loss falls and checkpoints are written."""
    done = cluster.controller.run(
        f"{THREADS} run-nanogpt {len(cluster.workers)} 1 --steps 200 --save-every 50 "
        f"--out /fsx/checkpoints/rehearsal {TRAINER}",
        timeout=240,
    )
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    require(done.returncode == 0, f"code {done.returncode}: {' '.join(last)}")
    losses = [float(found) for found in re.findall(r"^iter \d+: loss ([\d.]+)", done.stdout, re.M)]
    require(len(losses) > 2 and losses[-1] < 0.9 * losses[0], f"losses {losses[:1]} to {losses[-1:]}")
    saved = re.findall(r"^checkpoint at iter (\d+)", done.stdout, re.M)
    require(saved[-1:] == ["200"], f"checkpoints at {saved}")
    return f"200 steps, loss {losses[0]:.2f} to {losses[-1]:.2f}, checkpoints at {', '.join(saved)}"


AFTER: tuple[tuple[str, Act], ...] = (
    ("srun hostname", hostname_everywhere),
    ("ssh between nodes", ssh_between_all),
    ("ssh from a worker", ssh_from_a_worker),
    ("ssh from outside", ssh_from_outside),
    ("job environment", job_environment),
    ("job limits", job_limits),
    ("MPI hello", mpi_hello),
    ("gloo all-reduce", collective_sweep),
    ("training", training),
)

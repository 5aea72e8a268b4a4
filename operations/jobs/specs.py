"""The jobs: on EKS template, image, scripts and command of each, on Slurm its batch file, and what it needs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hyperpod_commands import nccom_test, pairs, slow_node

from components.catalogue.accelerators import Architecture
from components.catalogue.regions import Region
from components.config import InstanceGroup
from components.kubernetes.pod_environment import POD_INTERFACE, pod_variables

# AWS's own images, in public registries and pinned. Each was named by AWS's documentation or samples in 2026.
_PYTORCH_IMAGE = "public.ecr.aws/deep-learning-containers/pytorch-training:2.7.1-gpu-py312-cu128-ubuntu22.04-ec2-v1.37"
_NCCL_IMAGE = "public.ecr.aws/hpc-cloud/nccl-tests:cuda12.8.1-efa1.43.2-ofiv1.16.3-ncclv2.27.7-1-testsv2.16.9"
_NEURON_IMAGE = "public.ecr.aws/neuron/pytorch-training-neuronx:2.8.0-neuronx-py311-sdk2.26.1-ubuntu22.04"
_NEMO_IMAGE = "nvcr.io/nvidia/nemo:25.09.02"
# In AWS's own registry in each region. With transformers, which the plain image lacks.
_HUGGING_FACE_IMAGE = "{registry}/huggingface-pytorch-training:2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04"
# With Optimum Neuron 0.4.
_HUGGING_FACE_NEURON_IMAGE = (
    "{registry}/huggingface-pytorch-training-neuronx:2.8.0-transformers4.55.4-neuronx-py310-sdk2.26.0-ubuntu22.04"
)
IMAGE_ARCHITECTURE: Architecture = "x86_64"

# By which the verbs find a job and its pods.
NAME_LABEL = "app.kubernetes.io/name"
# Where a job's scripts are in its pods, and where its results go.
_MOUNT = "/fsx"
# Beside every trainer that imports it.
_REPORT = "lifecycle/training/training_report.py"
_LLAMA = "lifecycle/training/llama.py"
SCRIPTS, RESULTS = "/opt/training", f"{_MOUNT}/checkpoints"
# The home of the user that its pods run as.
SCRATCH = "/scratch"
TOKEN_SECRET, TOKEN_KEY = "hf-token", "token"
# Long enough for a start of MPI and 20 messages of 1 GiB over the slowest network that a test here has, 3 GB/s.
_PAIR_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One rendering: where, on how many nodes, with how many processes each, and the script's own arguments.

    ``network`` is the only one that NCCL may use, "" where it may choose. ``collective`` is what a bandwidth test
    measures.
    """

    name: str
    group: InstanceGroup
    nodes: int
    processes: int
    arguments: str = ""
    network: str = ""
    collective: str = "all_reduce"


def _own_words(plan: Plan) -> Sequence[str]:
    return shlex.split(plan.arguments)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How Slurm runs a job: ``files`` of ``jobs/slurm``, the batch file first, and the ``words`` after its name.

    ``per_device`` are the options of sbatch that take the number of GPUs of a node. ``image`` says whether it can run
    in a container: ``needed`` where it cannot run without.
    """

    files: tuple[str, ...]
    words: Callable[[Plan], Sequence[str]] = _own_words
    per_device: tuple[str, ...] = ("--ntasks-per-node", "--gpus-per-node")
    image: Literal["no", "possible", "needed"] = "possible"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job.

    ``images`` are by the accelerators that it is for; on EKS it runs in one of them. ``scripts`` are files of this
    project that its pods run. ``operator`` is the chart's key it needs. ``deadline`` is in seconds, None for training,
    whose length nobody knows. ``batch`` is how Slurm runs it; without one a verb of its name does.
    """

    title: str
    template: str
    images: Mapping[str, str]
    command: Callable[[Plan], str]
    scripts: tuple[str, ...] = ()
    operator: Literal["mpi_operator", "training_operator"] | None = None
    token: bool = False
    deadline: int | None = None
    batch: Batch | None = None

    def image(self, accelerator: str, region: Region) -> str:
        """The image for one of its accelerators."""
        return self.images[accelerator].format(registry=region.deep_learning_registry)


def _device_check(plan: Plan) -> str:
    row = plan.group.type
    if row.accelerator == "gpu":
        show, count = "nvidia-smi", "nvidia-smi -L | wc -l"
    else:
        show, count = "neuron-ls", "neuron-ls --json-output | grep -c neuron_device"
    return "\n".join(
        (
            show,
            f"found=$({count})",
            f'echo "$HOSTNAME: $found of {plan.processes} devices"',
            f'if [ "$found" -ne {plan.processes} ]; then echo FAIL; exit 1; fi',
            # A mount that answers may still be read-only, full or stale.
            f"probe={RESULTS}/.device-check-$HOSTNAME",
            f"if ! {{ mkdir -p {RESULTS} &&",
            '  echo "$HOSTNAME" > "$probe" && grep -qx "$HOSTNAME" "$probe" && rm "$probe"; }; then',
            f'  echo "$HOSTNAME: {_MOUNT} cannot be written to"; echo FAIL; exit 1; fi',
            f'echo "$HOSTNAME: {_MOUNT} is written to and read"',
            "echo PASS",
        )
    )


# Where EFA's plugin for NCCL and its libraries are in NVIDIA's images (NVIDIA-NeMo/RL, issue 1973, pull request 2585).
_EFA_LIBRARIES = "/opt/amazon/ofi-nccl/lib:/opt/amazon/aws-ofi-nccl/lib:/opt/amazon/efa/lib"
_FIND_EFA = f'export LD_LIBRARY_PATH="{_EFA_LIBRARIES}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"\n'
# mpirun forwards nothing by itself; a rank that sshd starts does not have its container's environment.
_FORWARDED = ("NCCL_", "FI_")


def _nccl_tests(plan: Plan) -> str:
    sizes = plan.arguments or "-b 8 -e 16G -f 2 -g 1 -c 1 -n 100"
    return f"exec {_nccl_test(plan, plan.nodes)} {sizes}"


def _nccl_test(plan: Plan, nodes: int, more: str = "") -> str:
    forwarded = [f"-x {name}" for name in sorted(pod_variables(plan.group)) if name.startswith(_FORWARDED)]
    forwarded += ["-x NCCL_NET"] if plan.network else []
    # By its full path mpirun finds its own libraries on the workers too. Its traffic goes over plain sockets; NCCL's as
    # the variables say.
    mpi = "/opt/amazon/openmpi/bin/mpirun"
    place = f"-np {nodes * plan.processes} --map-by ppr:{plan.processes}:node --bind-to none{more}"
    sockets = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0"
    test = f"/opt/nccl-tests/build/{plan.collective}_perf"
    return f"{mpi} {place} {sockets} -x PATH -x LD_LIBRARY_PATH {' '.join(forwarded)} {test}"


def _nccom_test(plan: Plan) -> str:
    """The launcher has no NeuronCores: the first worker starts the test, and MPI from there."""
    sizes = plan.arguments or " ".join(nccom_test.SWEEP)
    return "\n".join((_neuron_hosts(plan), f"run {sizes}", f"run {' '.join(nccom_test.CHECK)}"))


def _neuron_hosts(plan: Plan) -> str:
    """``hosts`` has the workers' addresses, and ``run`` tests those, from the first of them.

    What sshd starts there has nothing of its container's environment, so the command brings it.
    """
    several = (
        f'NEURON_RT_ROOT_COMM_ID="${{hosts[0]}}:{nccom_test.FIRST_PORT}"',
        f"CCOM_SOCKET_IFNAME={POD_INTERFACE}",
    )
    variables = [
        *('PATH="$PATH"', 'LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"'),
        *(f'{name}="${name}"' for name in sorted(pod_variables(plan.group)) if name.startswith("FI_")),
        *(several if plan.nodes > 1 else ()),
    ]
    collective = nccom_test.COLLECTIVES[plan.collective]
    ranks = f"$((${{#hosts[@]}} * {plan.processes}))"
    nodes = ' --nnodes "${#hosts[@]}" --hosts "${hosts[@]}"' if plan.nodes > 1 else ""
    return "\n".join(
        (
            "hosts=()",
            "for name in $(cut -d' ' -f1 /etc/mpi/hostfile); do",
            # A worker that has just become ready may have no name yet.
            '  until found=$(getent hosts "$name"); do',
            '    if ((SECONDS > 300)); then echo "no address of $name"; exit 1; fi',
            "    sleep 1",
            "  done",
            '  hosts+=("${found%% *}")',
            "done",
            "run() {",
            f"  test=(env {' '.join(variables)}",
            f'    /opt/aws/neuron/bin/nccom-test {collective} --nworkers {ranks}{nodes} "$@")',
            '  echo "${test[*]}"',
            '  ${limit:-} ssh "${hosts[0]}" "${test[*]@Q}"',
            "}",
        )
    )


def _find_slow_node(plan: Plan) -> str:
    """Every line of a pair's test has the places of its two workers before it, which ``pair_tests.read`` expects."""
    if plan.group.type.accelerator == "trainium":
        sizes = plan.arguments or " ".join(slow_node.NCCOM_SIZES)
        start = _neuron_hosts(plan)
        test = [
            '  hosts=("${hosts[$1]}" "${hosts[$2]}")',
            f'  limit="timeout {_PAIR_SECONDS}"',
            f'  run {sizes} 2>&1 | sed -u "s/^/$1 $2| /"',
        ]
    else:
        start = "hosts=($(cut -d' ' -f1 /etc/mpi/hostfile))"
        pair = f' --host "${{hosts[$1]}}:{plan.processes},${{hosts[$2]}}:{plan.processes}"'
        sizes = plan.arguments or f"{' '.join(slow_node.NCCL_SIZES)} -g 1 -c 1"
        test = [f'  timeout {_PAIR_SECONDS} {_nccl_test(plan, 2, pair)} {sizes} 2>&1 | sed -u "s/^/$1 $2| /"']
    rounds = pairs.rounds([str(place) for place in range(plan.nodes)])
    # A function in the background has variables of its own. A pair that fails does not stop the others.
    each = [" ".join(f"pair {one} {other} &" for one, other in members) + " wait" for members in rounds]
    return "\n".join((start, "pair() {", *test, "}", *each))


def _torchrun(script: str, before: str = "", *, out: bool = True) -> Callable[[Plan], str]:
    """Static rendezvous: rank and address are in the pod's environment."""

    def command(plan: Plan) -> str:
        place = '--node-rank="$RANK" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT"'
        size = f"--nnodes={plan.nodes} --nproc-per-node={plan.processes}"
        run = f"exec torchrun {size} {place} {SCRIPTS}/{script}" + (f" --out {RESULTS}/{plan.name}" if out else "")
        return before + f"{run} {plan.arguments}".rstrip()

    return command


def _elastic(script: str) -> Callable[[Plan], str]:
    """The operator sets everything else in PET_* variables, which torchrun reads.

    Not the number of processes: before its release 1.8 only jobs with a master have it (kubeflow/training-operator,
    pkg/controller.v1/pytorch/envvar.go; pull request 1948), and torchrun would start one.
    """

    def command(plan: Plan) -> str:
        run = f"exec torchrun --nproc-per-node={plan.processes} {SCRIPTS}/{script} --out {RESULTS}/{plan.name}"
        return f"{run} {plan.arguments}".rstrip()

    return command


# On Slurm a test is a program of the nodes', which gets an allocation of its own unless it is told that it has one.
_BIN = "/opt/hyperpod/bin"


def _program(name: str) -> Batch:
    """One of the nodes' test programs, which takes the number of nodes and of devices of each."""
    return Batch(
        files=("test.sbatch",),
        words=lambda plan: [f"{_BIN}/{name}", str(plan.nodes), str(plan.processes), *_own_words(plan)],
        per_device=("--gpus-per-node",),
        image="no",
    )


def _on_each_node(plan: Plan) -> list[str]:
    # srun gives all tasks the variables of the first node's shell, its name among them.
    own = "PATH=$PATH:/opt/aws/neuron/bin HOSTNAME=$(hostname)"
    return ["srun", "--mpi=none", "bash", "-ceu", f"{own}\n{_device_check(plan)}"]


JOBS: Mapping[str, Job] = MappingProxyType(
    {
        "device-check": Job(
            title="does every node see all its devices and write to the file system?",
            template="device-check",
            images={"gpu": _PYTORCH_IMAGE, "trainium": _NEURON_IMAGE},
            command=_device_check,
            deadline=900,
            batch=Batch(files=("test.sbatch",), words=_on_each_node, per_device=("--gpus-per-node",), image="no"),
        ),
        "nccl-tests": Job(
            title="bus bandwidth between GPUs of all nodes",
            template="mpi",
            images={"gpu": _NCCL_IMAGE},
            command=_nccl_tests,
            operator="mpi_operator",
            deadline=3600,
            batch=_program("run-nccl-test"),
        ),
        "nccom-test": Job(
            title="bus bandwidth between NeuronCores of all nodes",
            template="mpi",
            images={"trainium": _NEURON_IMAGE},
            command=_nccom_test,
            operator="mpi_operator",
            deadline=3600,
            batch=_program("run-nccom-test"),
        ),
        "find-slow-node": Job(
            title="which node or link is slow, by tests between pairs of nodes",
            template="mpi",
            images={"gpu": _NCCL_IMAGE, "trainium": _NEURON_IMAGE},
            command=_find_slow_node,
            operator="mpi_operator",
            deadline=3600,
        ),
        "nanogpt": Job(
            title="a small GPT on PyTorch DDP, the first job to run on a new cluster",
            template="pytorch",
            images={"gpu": _PYTORCH_IMAGE},
            command=_torchrun("nanogpt.py"),
            scripts=("lifecycle/training/nanogpt.py", _REPORT),
            operator="training_operator",
            batch=Batch(files=("nanogpt.sbatch",), per_device=("--ntasks-per-node",)),
        ),
        "fsdp-llama": Job(
            title="Llama, 7B to 70B, on PyTorch FSDP",
            template="elastic",
            images={"gpu": _HUGGING_FACE_IMAGE},
            command=_elastic("fsdp_llama.py"),
            scripts=("jobs/slurm/fsdp_llama.py", _LLAMA, _REPORT),
            operator="training_operator",
            token=True,
            batch=Batch(files=("fsdp_llama.sbatch", "fsdp_llama.py")),
        ),
        "nemo": Job(
            title="Llama 3 with NVIDIA NeMo",
            template="pytorch",
            images={"gpu": _NEMO_IMAGE},
            command=_torchrun("nemo_pretrain.py", _FIND_EFA),
            scripts=("jobs/slurm/nemo_pretrain.py", _REPORT),
            operator="training_operator",
            batch=Batch(files=("nemo.sbatch", "nemo_pretrain.py"), image="needed"),
        ),
        "neuron": Job(
            title="a small GPT with PyTorch Neuron",
            template="pytorch",
            images={"trainium": _NEURON_IMAGE},
            # torchrun gives each process its own NeuronCore; a count would make every process ask for all of them.
            command=_torchrun("neuron_train.py", f"unset NEURON_RT_NUM_CORES; export TRAINING={SCRIPTS}\n"),
            scripts=("lifecycle/training/nanogpt.py", _REPORT, "jobs/slurm/neuron_train.py"),
            operator="training_operator",
            batch=Batch(files=("neuron.sbatch", "neuron_train.py")),
        ),
        "neuron-llama": Job(
            title="Llama, 7B to 13B, with Optimum Neuron",
            template="pytorch",
            images={"trainium": _HUGGING_FACE_NEURON_IMAGE},
            command=_torchrun("neuron_llama.py", "unset NEURON_RT_NUM_CORES\n"),
            scripts=("jobs/slurm/neuron_llama.py", _LLAMA, _REPORT),
            operator="training_operator",
            token=True,
            batch=Batch(files=("neuron_llama.sbatch", "neuron.sbatch", "neuron_llama.py")),
        ),
    }
)


def own_job(script: str) -> Job:
    """A script that is not this project's, for torchrun on all devices. Its arguments are its own alone."""
    unset = "unset NEURON_RT_NUM_CORES\n"
    return Job(
        title=script,
        template="pytorch",
        images={"gpu": _PYTORCH_IMAGE, "trainium": _NEURON_IMAGE},
        command=_torchrun(script, unset, out=False),
        operator="training_operator",
        batch=Batch(
            files=("torchrun.sbatch",),
            words=lambda plan: [script, *_own_words(plan)],
            per_device=("--gpus-per-node",),
        ),
    )

"""Trains a small character-level GPT on all ranks of a Slurm job, with checkpoints on the shared file system.

One process a GPU (or a node), started by srun: rank and size come from SLURM_*, the address from MASTER_ADDR. Needs
PyTorch 1.13 or newer and nothing else: the text is generated, or read from --data. A requeued job continues from its
newest complete checkpoint; every batch depends only on step and rank, so the loss continues too.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import random
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Tuple

from training_report import Asked, Report

KEPT = 2  # checkpoints; an older one, in case the newest cannot be read


def main() -> None:
    """Train as one rank of the job."""
    # First of all: until then the signal ends the process, and loading PyTorch takes seconds.
    asked, stop = Asked(), False
    options = _options().parse_args()
    rank, world, local = _place()
    threads = options.threads or int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    # Set before PyTorch is loaded, because its libraries start this many threads; more threads than CPUs only spin.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = _torch()
    torch.set_num_threads(threads)
    backend = _join(torch, rank, world)
    device = _device(torch, local)
    if device != "cpu":
        # TF32, on tensor cores: PyTorch's default multiplies in full FP32 without them.
        torch.set_float32_matmul_precision("high")
    text = Path(options.data).read_text(encoding="utf-8") if options.data else make_text(options.seed, 400_000)
    symbols = sorted(set(text))
    data = _encode(torch, text, symbols)
    torch.manual_seed(options.seed)
    model = build(torch, len(symbols), options).to(device)
    whole = _distributed(torch, model, device, world)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1)
    out = Path(options.out)
    start, history = _resume(torch, out, model, optimizer, device)
    if rank == 0:
        size = sum(p.numel() for p in model.parameters()) / 1e6
        print(
            f"model {size:.2f}M parameters, {len(symbols)} characters, {world} ranks, {backend}, "
            f"PyTorch {torch.__version__}"
        )
        print(f"resumed after iter {start - 1}" if start else "started from nothing", flush=True)
    report = Report(rank)
    times: List[float] = []
    for step in range(start, options.steps + 1):
        report.begin()
        loss = _step(torch, whole, optimizer, data, options, step, rank, world, device, report)
        times.append(report.step(step, world * options.batch * options.block, loss) * 1000)
        if step % options.log_every == 0 or step == options.steps:
            history.append((step, loss))
            if rank == 0:
                recent = times[-options.log_every :]
                print(f"iter {step}: loss {loss:.4f}, {sum(recent) / len(recent):.0f} ms", flush=True)
        last = step == options.steps
        stop = step % options.log_every == 0 and _agreed(torch, asked, world, device)
        if rank == 0 and (last or stop or (step % options.save_every == 0 and step > start)):
            with report.checkpoint():
                _save(torch, out, model, optimizer, step, history)
            print(f"checkpoint at iter {step}", flush=True)
        if stop:
            break
    if rank == 0 and not stop:
        _result(out, options, history, times, backend, world)
    if world > 1:
        torch.distributed.barrier()
    end(0)


def end(code: int) -> NoReturn:
    """End the process at once, with this exit code.

    In the usual order the exit may hang forever: Gloo's destructor holds the interpreter's lock while it waits for a
    thread that needs it (seen with PyTorch 1.13, after an error as after success).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a rank's program, which ends the process itself. An error ends it with a traceback and code 1."""
    try:
        main()
    except Exception:
        traceback.print_exc()
        # Done here, while the traceback still holds main's objects.
        end(1)
    raise AssertionError("main ends the process itself")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", required=True, help="folder of checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--data", help="a text file; without one the text is generated")
    parser.add_argument("--batch", type=int, default=12, help="sequences a rank and step")
    parser.add_argument("--block", type=int, default=64, help="characters a sequence")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--embed", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=0, help="CPU threads a rank (default: Slurm's CPUs a task)")
    return parser


def _place() -> Tuple[int, int, int]:
    """Return rank, number of ranks, and rank on this node: torchrun's variables, otherwise Slurm's, otherwise a single
    one.
    """
    for names in (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")):
        if all(name in os.environ for name in names):
            rank, world, local = (int(os.environ[name]) for name in names)
            return rank, world, local
    return 0, 1, 0


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise SystemExit(f"this Python ({sys.executable}) has no PyTorch: {error}") from None
    return torch


def _join(torch: Any, rank: int, world: int) -> str:
    """Join the other ranks. nccl only if every rank has a GPU and EFA: mixed backends wait forever."""
    fast = torch.cuda.is_available() and os.environ.get("HYPERPOD_TRANSPORT", "efa").startswith("efa")
    if world == 1:
        return "nccl" if torch.cuda.is_available() else "gloo"
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    wait = datetime.timedelta(seconds=300)
    if rank:
        await_port(address, port, wait.total_seconds())
    # torchrun may already have a store at that port, for all attempts of the job. Then every rank is its client.
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = torch.distributed.TCPStore(address, port, world, rank == 0 and not shared, timeout=wait)
    if shared:
        store = torch.distributed.PrefixStore(f"attempt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    store.set(f"wish/{rank}", "nccl" if fast else "gloo")
    wishes = {store.get(f"wish/{other}").decode("ascii") for other in range(world)}
    backend = wishes.pop() if len(wishes) == 1 else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=wait)
    return str(backend)


def await_port(address: str, port: int, seconds: float) -> None:
    """Wait until the store listens. PyTorch's own client sleeps for a second if the store is not up yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.02)


def make_text(seed: int, length: int) -> str:
    """Return sentences of a small grammar: enough structure for the loss to fall, and nothing to download."""
    choose = random.Random(seed).choice
    names = ["Ada", "Bo", "Cyrus", "Dinah", "Edgar", "Fern", "Gus", "Hazel", "Iris", "Jonas", "Kit", "Lena"]
    nouns = "river lantern orchard engine letter mountain garden window harbour kettle compass meadow".split()
    verbs = "carried found mended followed painted counted watched remembered lost measured".split()
    marks = ["slowly", "quietly", "at dawn", "before winter", "with care", "without a word", "by the gate", "once more"]
    adjectives = ["old", "silver", "narrow", "quiet", "broken", "bright", "heavy", "green", "distant", "small"]
    parts: List[str] = []
    size = 0
    while size < length:
        noun = f"the {choose(adjectives)} {choose(nouns)}"
        sentence = choose(
            [
                f"{choose(names)} {choose(verbs)} {noun} {choose(marks)}.\n",
                f'"Where is {noun}?" asked {choose(names)}.\n',
                f"{choose(names)} and {choose(names)} {choose(verbs)} {noun}, "
                f"then {choose(verbs)} the {choose(nouns)}.\n",
                f"In year {choose('123456789')}{choose('0123456789')}, {noun} was {choose(adjectives)} again!\n",
            ]
        )
        parts.append(sentence)
        size += len(sentence)
    return "".join(parts)


def _encode(torch: Any, text: str, symbols: List[str]) -> Any:
    index = {symbol: number for number, symbol in enumerate(symbols)}
    return torch.tensor([index[symbol] for symbol in text], dtype=torch.long)


def build(torch: Any, symbols: int, options: argparse.Namespace) -> Any:
    """Build a decoder of pre-norm blocks that shares the embedding with the output layer."""
    nn = torch.nn

    class Attention(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(options.embed, 3 * options.embed)
            self.out = nn.Linear(options.embed, options.embed)

        def forward(self, x: Any) -> Any:
            b, t, e = x.shape
            q, k, v = (part.view(b, t, options.heads, -1).transpose(1, 2) for part in self.qkv(x).split(e, dim=2))
            if hasattr(nn.functional, "scaled_dot_product_attention"):
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                # Created here and not kept as a buffer, because DDP refuses to broadcast a boolean buffer.
                later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
                weights = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
                y = weights.masked_fill(later, float("-inf")).softmax(-1) @ v
            return self.out(y.transpose(1, 2).reshape(b, t, e))

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention = nn.LayerNorm(options.embed), Attention()
            self.between = nn.LayerNorm(options.embed)
            self.mlp = nn.Sequential(
                nn.Linear(options.embed, 4 * options.embed), nn.GELU(), nn.Linear(4 * options.embed, options.embed)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.before(x))
            return x + self.mlp(self.between(x))

    class Gpt(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(symbols, options.embed)
            self.places = nn.Embedding(options.block, options.embed)
            self.blocks = nn.Sequential(*(Block() for _ in range(options.layers)))
            self.last = nn.LayerNorm(options.embed)
            self.apply(self._start)

        @staticmethod
        def _start(module: Any) -> None:
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.tokens(x) + self.places(torch.arange(x.size(1), device=x.device))
            logits = self.last(self.blocks(h)) @ self.tokens.weight.t()
            return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    return Gpt()


def _device(torch: Any, local: int) -> str:
    """Return this rank's GPU. With --gpus-per-task Slurm shows each task only its own GPU, which is then number 0."""
    return f"cuda:{local % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def _distributed(torch: Any, model: Any, device: str, world: int) -> Any:
    if world == 1:
        return model
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=None if device == "cpu" else [device])


def _step(
    torch: Any,
    model: Any,
    optimizer: Any,
    data: Any,
    options: argparse.Namespace,
    step: int,
    rank: int,
    world: int,
    device: str,
    report: Report,
) -> float:
    """Train one step; return the mean loss of all ranks."""
    generator = torch.Generator().manual_seed(options.seed + step * 100_003 + rank)
    starts = torch.randint(len(data) - options.block, (options.batch,), generator=generator)
    x = torch.stack([data[i : i + options.block] for i in starts]).to(device)
    y = torch.stack([data[i + 1 : i + 1 + options.block] for i in starts]).to(device)
    loss = model(x, y)
    # From here on gradients are exchanged.
    report.computed(torch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach()
    if world > 1 and (step % options.log_every == 0 or step == options.steps):
        torch.distributed.all_reduce(mean)
        mean = mean / world
    return float(mean)


def _checkpoints(out: Path) -> List[Path]:
    return sorted(out.glob("checkpoint-*.pt"))


def _save(torch: Any, out: Path, model: Any, optimizer: Any, step: int, history: List[Tuple[int, float]]) -> None:
    """Save the checkpoint atomically: write a temporary file, flush and rename it."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"checkpoint-{step:08d}.pt"
    aside = out / f".{path.name}.new"
    # Only tensors and integers, which PyTorch 1.13 reads with weights_only. The options set the optimizer's settings.
    state = {"model": model.state_dict(), "moments": optimizer.state_dict()["state"], "step": step}
    state["history"] = torch.tensor(history)
    try:
        with aside.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except (OSError, RuntimeError) as error:
        # On a full disk the half of a checkpoint would keep even the log, with this reason, from being written.
        with contextlib.suppress(OSError):
            aside.unlink()
        why: BaseException = error
        while why.__context__:  # PyTorch's own error hides the system's
            why = why.__context__
        raise RuntimeError(f"the checkpoint of iter {step} was not saved in {out}: {why}") from None
    for old in _checkpoints(out)[:-KEPT]:
        old.unlink()


def _resume(torch: Any, out: Path, model: Any, optimizer: Any, device: str) -> Tuple[int, List[Tuple[int, float]]]:
    """Return the next step and the losses so far, from the newest readable checkpoint."""
    for path in reversed(_checkpoints(out)):
        try:
            # Load only weights, so that nobody who can write to the folder can run code here.
            state: Dict[str, Any] = torch.load(str(path), map_location=device, weights_only=True)
            moments = {**optimizer.state_dict(), "state": state["moments"]}
        except Exception as error:
            print(f"{path.name} cannot be read ({error}); trying the one before", flush=True)
            continue
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(moments)
        return int(state["step"]) + 1, [(int(step), float(loss)) for step, loss in state["history"].tolist()]
    return 0, []


def _agreed(torch: Any, asked: Asked, world: int, device: str) -> bool:
    """Whether any rank was asked to stop. All ranks learn it at the same step, or some would wait forever."""
    if world == 1:
        return bool(asked)
    flag = torch.tensor([1.0 if asked else 0.0], device=device)
    torch.distributed.all_reduce(flag)
    return bool(flag.item())


def _result(
    out: Path,
    options: argparse.Namespace,
    history: List[Tuple[int, float]],
    times: List[float],
    backend: str,
    world: int,
) -> None:
    result = {
        "steps": options.steps,
        "first_loss": history[0][1],
        "last_loss": history[-1][1],
        "history": history,
        "ms_per_step": sum(times) / len(times) if times else 0.0,
        "backend": backend,
        "world_size": world,
        # The last step has saved one.
        "checkpoint": str(_checkpoints(out)[-1]),
    }
    aside = out / ".result.json.new"
    aside.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    aside.replace(out / "result.json")
    print(f"done: {options.steps} iterations, loss {history[0][1]:.4f} -> {history[-1][1]:.4f}", flush=True)


if __name__ == "__main__":
    run(main)

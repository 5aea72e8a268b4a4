"""What the trainers of lifecycle/training compute, said once more and more slowly. A Python with PyTorch runs this.

``formulas.py NAME`` calls that function, whose assertions fail where the trainer and the formula differ.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.environ["TRAINING"])

import gloo_sweep
import llama
import nanogpt
import numpy
import torch
import torch.distributed as dist

LAYERS, HEADS, WIDTH, BLOCK, SYMBOLS = 2, 2, 8, 6, 7


def gpt():
    """The losses are those of GPT-2 (Radford et al., 2019; the MLP and norms as in github.com/karpathy/nanoGPT)."""
    options = SimpleNamespace(layers=LAYERS, heads=HEADS, embed=WIDTH, block=BLOCK)
    torch.manual_seed(3)
    model = nanogpt.build(torch, SYMBOLS, options)
    # Small at the start, or the first losses are far above that of a guess.
    assert {round(float(p.std()), 2) for n, p in model.named_parameters() if n.endswith("qkv.weight")} == {0.02}
    assert 0.01 < float(model.tokens.weight.std()) < 0.03
    assert 0.01 < float(model.places.weight.std()) < 0.03
    for parameter in model.parameters():  # No bias is 0, and no norm the identity.
        torch.nn.init.normal_(parameter, std=0.5)
    x, y = torch.randint(SYMBOLS, (2, 3, BLOCK - 1))
    wanted = -sum(_says(model.state_dict(), *pair) for pair in zip(x, y)) / x.numel()  # noqa: B905 (as Python 3.9)
    has = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    if has:
        del torch.nn.functional.scaled_dot_product_attention
    assert torch.allclose(model(x, y), wanted, atol=1e-5), (model(x, y), wanted)
    # PyTorch 1.13 has none of its own.
    torch.nn.functional.scaled_dot_product_attention = has or _attention
    assert torch.allclose(model(x, y), wanted, atol=1e-5), (model(x, y), wanted)


def _attention(q, k, v, is_causal):
    """As PyTorch 2's documentation has it."""
    seen = torch.ones(q.size(-2), k.size(-2)).tril() if is_causal else torch.ones(q.size(-2), k.size(-2))
    return (q @ k.mT / math.sqrt(q.size(-1)) + seen.log()).softmax(-1) @ v


def _says(w, x, y):
    """The logarithm of what the model with these weights says of y after x, position by position."""

    def linear(name, one):
        return w[f"{name}.weight"] @ one + w[f"{name}.bias"]

    def norm(name, one):
        one = one - one.mean()
        return one / (one.square().mean() + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    rows = [w["tokens.weight"][symbol] + w["places.weight"][place] for place, symbol in enumerate(x)]
    for block in (f"blocks.{number}" for number in range(LAYERS)):
        inner = [linear(f"{block}.attention.qkv", norm(f"{block}.before", row)).chunk(3) for row in rows]
        for place, row in enumerate(rows):
            heads = []
            for part in torch.arange(WIDTH).chunk(HEADS):
                query = inner[place][0][part]
                shares = [(query @ key[part] / math.sqrt(len(part))).exp() for _, key, _ in inner[: place + 1]]
                seen = zip(shares, inner)  # noqa: B905 (as Python 3.9: those up to this place)
                heads.append(sum(share * value[part] for share, (_, _, value) in seen) / sum(shares))
            row = row + linear(f"{block}.attention.out", torch.cat(heads))
            wide = linear(f"{block}.mlp.0", norm(f"{block}.between", row))
            rows[place] = row + linear(f"{block}.mlp.2", wide * (1 + torch.erf(wide / math.sqrt(2))) / 2)
    said = [w["tokens.weight"] @ norm("last", row) for row in rows]
    return sum((one - one.exp().sum().log())[symbol] for one, symbol in zip(said, y))  # noqa: B905


def step():
    """A step goes down its own batch's gradient, which is clipped to 1, and tells the mean loss when it is logged."""
    weight = torch.nn.Parameter(torch.tensor([30.0, 40.0]))
    seen, options = [], SimpleNamespace(seed=5, batch=4, block=3, log_every=2, steps=3)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x, y):
            seen.append((x.tolist(), y.tolist()))
            return (self.weight**2).sum() / 2

    def train(number, rank=0, world=1, of=options):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        report = SimpleNamespace(computed=lambda module: [module][module is not torch])
        return nanogpt._step(torch, model, optimizer, torch.arange(50), of, number, rank, world, "cpu", report)

    # Half of 30 squared and of 40 squared; a gradient of 50 is one of 1, in its direction.
    assert train(1) == 1250.0
    assert torch.allclose(weight, torch.tensor([29.4, 39.2]), atol=1e-4), weight
    assert abs(train(1) - 49**2 / 2) < 0.01
    assert torch.allclose(weight, torch.tensor([28.8, 38.4]), atol=1e-4), "no gradient is left of the step before"
    # Sequences of the text, and for each symbol the next. Of one step and rank they are always the same.
    assert seen[0] == seen[1]
    x, y = seen[0]
    assert [len(x), {len(one) for one in x}] == [4, {3}]
    assert all(one == list(range(one[0], one[0] + 3)) for one in x)
    assert y == [[symbol + 1 for symbol in one] for one in x]
    for number, rank in ((2, 0), (1, 1)):
        train(number, rank)
    starts = {tuple(one[0] for one in x) for x, _ in seen}
    assert len(starts) == 3
    seen.clear()
    train(1, of=SimpleNamespace(**{**vars(options), "seed": 50}))
    train(1, of=SimpleNamespace(**{**vars(options), "batch": 4000}))
    assert tuple(one[0] for one in seen[0][0]) not in starts
    # To the text's end: the last sequence is followed by its last symbol.
    assert {one[0] for one in seen[1][0]} == set(range(47))
    told, rest = [], SimpleNamespace(**{**vars(options), "log_every": 7})
    dist.all_reduce = lambda tensor: (told.append(1), tensor.mul_(10))
    # Of four ranks. They wait for each other's losses only where one is shown: every seventh, and the last.
    for number, share in ((0, 10 / 4), (1, 1), (3, 10 / 4)):
        before = float((weight**2).sum() / 2)
        assert abs(train(number, 0, 4, rest) / before - share) < 1e-4
    assert len(told) == 2


def batches():
    """Sequences of the tokens, or of any that the vocabulary has: a step's and a rank's own, and always the same."""
    options = SimpleNamespace(seed=1, batch=2000, context=4, vocabulary=9)
    text = llama.batch(options, numpy.arange(50, dtype="uint16"), 3, 0)
    assert [text.dtype, tuple(text.shape)] == [torch.int64, (2000, 4)]
    assert (text - text[:, :1]).unique(dim=0).tolist() == [[0, 1, 2, 3]]
    assert text[:, 0].unique().tolist() == list(range(47))
    drawn = llama.batch(options, None, 3, 0)
    assert [tuple(drawn.shape), drawn.unique().tolist()] == [(2000, 4), list(range(9))]
    assert llama.batch(options, numpy.arange(4, dtype="uint16"), 3, 0)[0].tolist() == [0, 1, 2, 3]
    for data in (None, numpy.arange(50, dtype="uint16")):
        small = SimpleNamespace(**{**vars(options), "batch": 2})
        others = [llama.batch(small, data, step, rank).tolist() for step in (0, 1, 2) for rank in (0, 1, 2)]
        others.append(llama.batch(SimpleNamespace(**{**vars(small), "seed": 50}), data, 0, 0).tolist())
        assert all(one not in others[:number] for number, one in enumerate(others))
        assert llama.batch(small, data, 0, 0).tolist() == others[0]


def steps():
    """The steps from one on: what is reported, printed and saved of a rank that is the first of two."""
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
    dist.get_world_size = lambda: 2
    did, clock, now, stop = [], [0.0], [2], [99]
    # The other rank's loss is a half, and it may be asked to stop.
    dist.all_reduce = lambda both: both.add_(torch.tensor([0.25, float(now[0] > stop[0])]))

    class Report:
        def __init__(self, rank):
            assert rank == 0

        def begin(self):
            clock[0] = 0.0

        def step(self, *given, steps):
            did.append((*given, steps))
            return clock[0] / steps

        def alone(self, module, device):
            assert module is torch
            did.append(device.type)

        checkpoint = __enter__ = lambda self: self

        def __exit__(self, *_):
            did.append("saved")

    def one(sequences, rate):
        assert sequences.tolist() == llama.batch(options, None, now[0], 0).tolist()
        assert rate == llama.rate(options, now[0])
        clock[0] += 2.0
        now[0] += 1
        return torch.tensor(float(now[0]), requires_grad=True)

    llama.Report, llama.print = Report, lambda text, flush: did.append(text)
    options = llama.parser("x").parse_args(["--out", "x", "--context", "8"])
    options.steps, options.save_every, options.log_every = 9, 2, 3
    llama.train(options, 2, None, False, one, lambda step: did.append(f"save {step}"))
    # Of two ranks with one sequence of eight tokens each. Not saved at once, but where a step is logged or one is due.
    assert did == [
        *((3, 16, 2.25, 2), "cpu", "step 3: loss 2.2500, 2000 ms, 8 tokens/s"),
        *((4, 16, 2.75, 1), "cpu", "step 4: loss 2.7500, 2000 ms, 8 tokens/s", "save 4", "saved"),
        *((6, 16, 3.75, 2), "cpu", "step 6: loss 3.7500, 2000 ms, 8 tokens/s", "save 6", "saved"),
        *((8, 16, 4.75, 2), "cpu", "step 8: loss 4.7500, 2000 ms, 8 tokens/s", "save 8", "saved"),
    ], did
    # The other rank is asked in step 3, or this one before all: they stop together, at a step that is logged.
    for others, own, last in ((3, False, 3), (99, True, 2)):
        did.clear()
        now[0], stop[0] = 1, others
        llama.train(options, 1, None, own, one, lambda step: did.append(f"save {step}"))
        assert now[0] == last + 1
        assert [step for step in did if str(step).startswith("save ")] == ["save 2", "save 3"][: last - 1]


def sweep():
    """One of three ranks: each collective's first result is right, and what did not come counts as wrong."""
    rank, world = int(os.environ["RANK"]), 3
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=world)
    for count, part in ((7, 2), (1, 1)):
        _exchange(rank, world, count, part)
    _time(rank, world)


def _exchange(rank, world, count, part):
    # Values that are wrong as long as nothing was exchanged: a rank has its own, and zeros.
    wrong = {
        "all_reduce": [count] * 3,
        "broadcast": [0, count, count],  # The first rank's is what all get.
        "reduce": [count, 0, 0],
        "all_gather": [part * world] * 3,
        "gather": [part * world, 0, 0],
        "scatter": [part] * 3,
        "sendrecv": [part] * 3,
    }
    for name, before in wrong.items():
        operation, check = gloo_sweep._operation(torch, dist, name, count, rank, world)
        assert int(check()) == before[rank], (name, check())
        operation()
        assert int(check()) == 0, name


def _time(rank, world):
    # Rank r needs r + 1 hundredths of a second a round, of which one is said to be wrong.
    clock, rounds = [0.0], [0]
    gloo_sweep.time = SimpleNamespace(perf_counter=lambda: clock[0])

    def operation(seconds):
        def work():
            clock[0] += seconds * (rank + 1)
            rounds[0] += 1

        return work

    options = SimpleNamespace(collective="x", iterations=None)
    for seconds, iterations, many in ((0.01, None, 13), (1, None, 3), (1e-9, None, 100), (0.01, 5, 5)):
        options.iterations, rounds[0] = iterations, 0
        gloo_sweep._operation = lambda *_, seconds=seconds: (operation(seconds), lambda: rank)
        spent, found = gloo_sweep._measure(torch, dist, options, 1, rank, world)
        # The first round is checked and the second tells how many fit into 0.4 s, at least 3 and at most 100.
        assert (rounds[0], found) == (2 + many, 3), (seconds, rounds, found)
        assert abs(spent / (3 * seconds) - 1) < 1e-3, "the slowest rank's"


if __name__ == "__main__":
    globals()[sys.argv[1]]()

"""What the trainers of lifecycle/training compute, said once more and more slowly. A Python with PyTorch runs this.

``formulas.py NAME`` calls that function, whose assertions fail where the trainer and the formula differ.
"""

# mypy: ignore-errors
import os
import sys
from types import SimpleNamespace

sys.path.insert(0, os.environ["TRAINING"])

import gloo_sweep
import nanogpt
import torch
import torch.distributed as dist


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

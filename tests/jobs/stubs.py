"""What a trainer imports and this machine lacks, as far as the trainer uses it. A process of one rank, on CPUs."""

# ruff: noqa: ARG002, ARG004 (they have the signatures of what they stand for)
# mypy: ignore-errors
from __future__ import annotations

import sys
import types
from pathlib import Path


def module(name: str, **members: object) -> types.ModuleType:
    """Put a module into sys.modules, with its parents."""
    parent, _, last = name.rpartition(".")
    found = types.ModuleType(name)
    vars(found).update(members)
    sys.modules[name] = found
    if parent:
        setattr(sys.modules.get(parent) or module(parent), last, found)
    return found


def xla() -> None:
    """torch_xla: the device is the CPU, and a rank is alone."""
    import torch

    module(
        "torch_xla.core.xla_model",
        xla_device=lambda: torch.device("cpu"),
        optimizer_step=lambda optimizer: optimizer.step(),
        mark_step=lambda: None,
        wait_device_ops=lambda: None,
        rendezvous=lambda tag: None,
        is_master_ordinal=lambda: True,
        mesh_reduce=lambda tag, value, reduce: reduce([value]),
        save=lambda state, path, **_: torch.save(state, path),
    )
    module("torch_xla.distributed.xla_backend")
    join = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend: join(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )


def nxd() -> None:
    """neuronx_distributed: the newest whole checkpoint is the one with the file ``done``."""
    import torch

    def done(folder):
        return sorted(path.parent for path in Path(folder).glob("*/done"))

    def save(folder, tag, model, optimizer, scheduler, user_content, use_xser, num_kept_ckpts):
        path = Path(folder) / tag
        path.mkdir(parents=True)
        states = [one.state_dict() for one in (model, optimizer, scheduler)]
        torch.save((states, user_content), str(path / "all.pt"))
        (path / "done").touch()
        for old in done(folder)[:-num_kept_ckpts]:
            (old / "done").unlink()

    def load(folder, model, optimizer, scheduler):
        states, content = torch.load(str(done(folder)[-1] / "all.pt"))
        for one, state in zip((model, optimizer, scheduler), states, strict=True):
            one.load_state_dict(state)
        return content

    module(
        "neuronx_distributed", save_checkpoint=save, load_checkpoint=load, has_checkpoint=lambda path: bool(done(path))
    )


def optimum() -> None:
    """optimum.neuron 0.4: a trainer whose train() sets up, steps and saves in the order of the real one."""
    import torch

    class Trainer:
        def __init__(self, model, args, train_dataset):
            self.model, self.args, self.train_dataset = model, args, train_dataset

        def setup_training(self, *args, **kwargs):
            self.state = types.SimpleNamespace(global_step=0)
            self.global_step_last_logged = 0
            inner = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
            self.optimizer = types.SimpleNamespace(optimizer=inner)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1 / (1 + step))

        def _get_train_sampler(self, train_dataset=None):
            return torch.utils.data.RandomSampler(train_dataset or self.train_dataset)

        def order(self):
            """What accelerator.py makes of the sampler. Every run begins with the first."""
            shuffle = not isinstance(self._get_train_sampler(), torch.utils.data.SequentialSampler)
            return iter(
                torch.utils.data.distributed.DistributedSampler(
                    self.train_dataset, num_replicas=2, rank=0, shuffle=shuffle
                )
            )

        def train(self):
            order = self.order()
            self.setup_training(None, max_steps=self.args.max_steps)
            self.tell()
            while self.state.global_step < self.args.max_steps:
                batch = self.train_dataset[next(order)]["input_ids"].float()
                self.model(batch).sum().backward()
                self.optimizer.optimizer.step()
                self.optimizer.optimizer.zero_grad()
                self.lr_scheduler.step()
                self.state.global_step += 1
                print(f"step {self.state.global_step}: saw {int(batch[0])}")
                self.tell()
                if self.state.global_step % self.args.logging_steps == 0:
                    self.log({"loss": 2.5})
                if self.state.global_step % self.args.save_steps == 0:
                    self._save_checkpoint()

        def log(self, logs):
            print("logged", logs)

        def tell(self):
            weights = sum(float(parameter.sum()) for parameter in self.model.parameters())
            moments = [float(state["exp_avg"].sum()) for state in self.optimizer.optimizer.state.values()]
            print("state", weights, moments, self.lr_scheduler.get_last_lr())

    def arguments(**given):
        return types.SimpleNamespace(**given, train_batch_size=2, trn_config=None)

    class Model:
        @staticmethod
        def from_config(config, trn_config):
            torch.manual_seed(7)
            return torch.nn.Linear(config.max_position_embeddings, 1)

    module("optimum.neuron", NeuronTrainer=Trainer, NeuronTrainingArguments=arguments)
    module("optimum.neuron.models.training", NeuronModelForCausalLM=Model)
    module("transformers", LlamaConfig=types.SimpleNamespace)


def fsdp() -> None:
    """What fsdp_llama.py takes from PyTorch 2.6 and transformers, for one rank that has all of a model."""
    import torch

    def save(state, checkpoint_id):
        torch.save(state, f"{checkpoint_id}/all.pt")

    def load(state, checkpoint_id):
        found = torch.load(f"{checkpoint_id}/all.pt")
        for part in ("model", "optimizer"):
            state[part].update(found[part])
        state["step"].copy_(found["step"])

    def put(model, optimizer, model_state_dict, optim_state_dict):
        model.load_state_dict(model_state_dict)
        optimizer.load_state_dict(optim_state_dict)

    torch.Tensor.cuda = lambda self: self
    torch.distributed.get_rank = lambda: 0
    torch.distributed.barrier = lambda: None
    torch.distributed.broadcast_object_list = lambda objects, src: None
    module("torch.distributed.checkpoint", save=save, load=load)
    module(
        "torch.distributed.checkpoint.state_dict",
        StateDictOptions=None,
        get_state_dict=lambda model, optimizer: (model.state_dict(), optimizer.state_dict()),
        set_model_state_dict=None,
        set_state_dict=put,
    )
    module("torch.distributed.device_mesh", init_device_mesh=None)
    module("torch.distributed.fsdp", MixedPrecisionPolicy=None, fully_shard=None)
    module("transformers", AutoModelForCausalLM=None, LlamaConfig=None, LlamaForCausalLM=None)
    module("transformers.models.llama.modeling_llama", LlamaDecoderLayer=None)


def nemo() -> None:
    """nemo, nemo_run and lightning: a recipe is said instead of run, its callbacks see two steps and a checkpoint."""
    import json

    import torch

    def recipe(**given):
        parts = {"trainer": types.SimpleNamespace(callbacks=None), "resume": types.SimpleNamespace()}
        parts["data"] = types.SimpleNamespace(global_batch_size=512, seq_length=8192)
        # NeMo 2.4, recipes/optim/adam.py: of a million steps (recipes/llama3_8b.py).
        parts["optim"] = types.SimpleNamespace(lr_scheduler=types.SimpleNamespace(warmup_steps=2000))
        return types.SimpleNamespace(given=given, log=types.SimpleNamespace(ckpt=types.SimpleNamespace()), **parts)

    def fit(callbacks):
        trainer = types.SimpleNamespace(global_rank=3, global_step=0, log_every_n_steps=2, saved=[])
        trainer.callback_metrics = {"reduced_train_loss": 2.5}
        trainer.save_checkpoint = trainer.saved.append
        model = types.SimpleNamespace(device=torch.device("cpu"))
        for callback in callbacks:
            callback.on_train_start(trainer, None)
        for index in range(2):
            for callback in callbacks:
                callback.on_train_batch_start(trainer, None, "batch", index)
            trainer.global_step += 1
            for callback in callbacks:
                callback.on_train_batch_end(trainer, model, "outputs", "batch", index)
        trainer.save_checkpoint("here")
        assert trainer.saved == ["here"]

    def run(recipe, direct):
        fit(vars(recipe.trainer).pop("callbacks"))
        log = {name: str(value) for name, value in vars(recipe.log.ckpt).items()}
        parts = {"trainer": vars(recipe.trainer), "resume": vars(recipe.resume), "checkpoints": log}
        warmup = recipe.optim.lr_scheduler.warmup_steps
        print(json.dumps({**recipe.given, **parts, "direct": direct, "warmup": warmup}))

    module("lightning.pytorch", Callback=object)
    module("nemo_run", run=run, Config=lambda kind, **given: kind(**given))
    module("nemo.collections.llm", llama3_8b=types.SimpleNamespace(pretrain_recipe=recipe))

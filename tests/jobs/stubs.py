"""What a trainer imports and this machine lacks, as far as the trainer uses it. A process of one rank, on CPUs."""

# mypy: ignore-errors
import sys
import types


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


def fsdp() -> None:
    """What fsdp_llama.py takes from PyTorch 2.6 and transformers, for one rank that has all of a model."""
    import torch

    def save(state, checkpoint_id):
        torch.save(state, f"{checkpoint_id}/all.pt")

    class CheckpointException(BaseException):
        """PyTorch's is no Exception (torch/distributed/checkpoint/api.py)."""

    def load(state, checkpoint_id="", storage_reader=None):
        found = storage_reader.saved() if storage_reader else torch.load(f"{checkpoint_id}/all.pt")
        if found is None:
            raise CheckpointException
        for part in ("model", "optimizer"):
            state[part].update(found[part])
        state["step"].copy_(found["step"])

    def put(model, optimizer, model_state_dict, optim_state_dict):
        model.load_state_dict(model_state_dict)
        optimizer.load_state_dict(optim_state_dict)

    torch.Tensor.cuda = lambda self: self
    torch.distributed.get_rank = lambda: 0
    torch.distributed.get_world_size = lambda: 1
    torch.distributed.barrier = lambda: None
    torch.distributed.broadcast_object_list = lambda objects, src: None
    files = {"save": save, "load": load, "async_save": _nodes_memory()}
    module("torch.distributed.checkpoint", CheckpointException=CheckpointException, **files)
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


def _nodes_memory():
    """amzn-sagemaker-checkpointing 1.1.3, with what it saves in ``remembered`` by its namespace and step."""
    import copy

    remembered = {}

    class Tier:
        def __init__(self, checkpoint_config, step):
            self._there = remembered.setdefault(checkpoint_config.namespace, {})
            self.step = step

        def read_metadata(self):
            self.step = max(self._there, default=None)
            return types.SimpleNamespace(state_dict_metadata=self._there)

        def saved(self):
            return self._there[self.step]

        def keep(self, state):
            self._there[self.step] = copy.deepcopy(state)

    def async_save(state, storage_writer):
        storage_writer.keep(state)
        return types.SimpleNamespace(exception=lambda: None)

    package = "amzn_sagemaker_checkpointing"
    files = f"{package}.checkpointing.filesystem.filesystem"
    module(files, SageMakerTieredStorageReader=Tier, SageMakerTieredStorageWriter=Tier, remembered=remembered)
    module(f"{package}.config.sagemaker_checkpoint_config", SageMakerCheckpointConfig=types.SimpleNamespace)
    return async_save


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


def torchtitan() -> None:
    """TorchTitan 0.2.2: four ranks, two stages of a pipeline; two steps, a line of the log and a checkpoint."""
    import torch

    class Manager:
        def _should_save(self, _, last_step):
            return last_step

        def save(self, _, last_step=False):
            assert last_step

    class Metrics:
        num_flops_per_token, gpu_peak_flops = 1e9, 2e12
        parallel_dims = types.SimpleNamespace(non_data_parallel_size=2, pp=2)

        def log(self, _, loss, worst, norm, extra_metrics=None):
            assert (loss, worst, norm, extra_metrics) == (2.5, 3.5, 1.0, {"lr": 1})

    class Trainer:
        def __init__(self):
            self.device, self.ntokens_seen, self.metrics_processor = torch.device("cpu"), 100, Metrics()

        def train_step(self, data):
            self.ntokens_seen += 1000
            if data == "logged":
                self.metrics_processor.log(2, 2.5, 3.5, 1.0, extra_metrics={"lr": 1})

    class ConfigManager:
        def parse_args(self, words):
            return words

    def main(kind):
        print(*ConfigManager().parse_args())
        trainer, manager = kind(), Manager()
        for number, data in enumerate(("", "logged"), 1):
            trainer.train_step(data)
            manager.save(number, last_step=number == 2)

    module("torchtitan.components.checkpoint", CheckpointManager=Manager)
    module("torchtitan.components.metrics", MetricsProcessor=Metrics)
    module("torchtitan.config", ConfigManager=ConfigManager)
    module("torchtitan.train", Trainer=Trainer, main=main)


def trl() -> None:
    """transformers 5.3 and trl 0.28: two ranks, two steps, a line of the log and a checkpoint."""
    import torch

    class Model:
        device = torch.device("cpu")

        def parameters(self):
            return [torch.zeros(10, requires_grad=True), torch.zeros(90)]

        def num_parameters(self, exclude_embeddings):
            return 100 if exclude_embeddings else 200

    class Trainer:
        def __init__(self):
            self.model, self.args, self._callbacks = Model(), types.SimpleNamespace(world_size=2), []

        def is_world_process_zero(self):
            return True

        def add_callback(self, one):
            self._callbacks.append(one)

        def train(self, resume_from_checkpoint=None):
            print("from", resume_from_checkpoint)
            state = types.SimpleNamespace(global_step=2, is_world_process_zero=True)
            line = {"loss": 2.5, "num_tokens": 2000.0}
            for one in self._callbacks:
                for _ in range(2):
                    one.on_step_begin(None, state, None, model=None)
                    one.on_step_end(None, state, None)
                one.on_log(None, state, None, logs=line)
                one.on_evaluate(None, state, None)
                one.on_save(None, state, None)
                one.on_log(None, state, None, logs={"train_runtime": 1.0})

    def main(*words):
        print(*words)
        Trainer().train()

    parser = types.SimpleNamespace(parse_args_and_config=lambda words: words)
    torch.cuda.is_available, torch.cuda.get_device_name = (lambda: True), (lambda: "NVIDIA L40S")
    torch.cuda.synchronize = lambda: None
    module("transformers", Trainer=Trainer, TrainerCallback=object)
    module("trl.scripts.sft", make_parser=lambda: parser, main=main)

"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""

from importlib.util import find_spec

# Its facts, parsers and thresholds are the program's too. `pulumi install` brings the requirements alone.
if find_spec("hyperpod_node") is None:
    raise ModuleNotFoundError(
        "this project is not installed: `make rehearse` does it, or `pip install --no-deps -e .` in its environment",
        name="hyperpod_node",
    )

"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""

import sys
from importlib.util import find_spec
from pathlib import Path

# The nodes' package, which nodes get as files, shares facts, parsers and thresholds with the program. `pulumi install`
# installs requirements.txt and not this project: the package is then in its folder alone.
if find_spec("hyperpod_node") is None:
    sys.path.append(str(Path(__file__).parents[1] / "lifecycle"))

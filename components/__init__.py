"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""

import sys
from importlib.util import find_spec
from pathlib import Path

# The nodes' package, which nodes get as files, shares facts, parsers and thresholds with the program. Where this project
# is not installed, as after `pulumi install`, which installs requirements.txt alone, it is only in its folder.
if find_spec("hyperpod_node") is None:
    sys.path.append(str(Path(__file__).parents[1] / "lifecycle"))

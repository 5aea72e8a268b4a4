"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""

import sys
from pathlib import Path

# The nodes' package is shipped to them as files and not installed anywhere; facts, parsers and thresholds are shared
# with it.
sys.path.append(str(Path(__file__).parents[1] / "lifecycle"))

"""HyperPod on Pulumi: the ComponentResources and the typed configuration they are built from."""

import sys
from pathlib import Path

# The nodes' package is shipped as files and not installed. The program shares facts, parsers and thresholds with it.
sys.path.append(str(Path(__file__).parents[1] / "lifecycle"))

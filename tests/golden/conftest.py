"""The node's own package is not installed: it is shipped as files, and imported from where they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "lifecycle"))

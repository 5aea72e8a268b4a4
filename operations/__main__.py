"""``hyperpod``."""

import sys

try:
    from operations.cli import main
except ModuleNotFoundError as missing:
    sys.stderr.write(
        f"{missing.name} is missing in {sys.executable}: `. venv/bin/activate` (`make rehearse` creates it)\n"
    )
    sys.exit(3)
except KeyboardInterrupt:
    sys.stderr.write("Cancelled.\n")
    sys.exit(130)

sys.exit(main())

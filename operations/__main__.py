"""``python -m operations`` is ``hyperpod`` of the current folder."""

import sys

import hyperpod

sys.exit(hyperpod.run())

#!/bin/bash
# Runs a script with the first Python on this node that has PyTorch. Set HYPERPOD_PYTHON to choose another.
# With -c, Python looks for modules in the working folder first, which any user may own.
has_torch="import sys; sys.path = [p for p in sys.path if p]; import importlib.util as i; sys.exit(i.find_spec('torch') is None)"
for python in ${HYPERPOD_PYTHON:+"$HYPERPOD_PYTHON"} python3 /opt/pytorch/bin/python3 /opt/conda/bin/python3 /usr/bin/python3; do
  if "$python" -c "$has_torch" 2>/dev/null; then
    exec "$python" "$@"
  fi
done
echo "$(hostname): no Python with PyTorch here; HYPERPOD_PYTHON may name one" >&2
exit 127

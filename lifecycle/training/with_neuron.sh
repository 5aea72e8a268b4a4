#!/bin/bash
# Runs a command from the newest AWS Neuron environment for PyTorch on this node. Set NEURON_VENV to choose another.
venv=${NEURON_VENV-}
if [[ -z $venv ]]; then
  # AWS's images have environments such as aws_neuronx_venv_pytorch_2_9. Longer names are for inference.
  shopt -s nullglob
  venv=$(printf '%s\n' "${HYPERPOD_OPT:-/opt}"/aws_neuronx_venv_pytorch_* | grep -E 'pytorch(_[0-9]+)+$' | sort -V | tail -n 1)
fi
# A container brings its own, on PATH.
if [[ -z $venv && -n ${CONTAINER_IMAGE-} ]]; then exec "$@"; fi
if [[ -z $venv || ! -x $venv/bin/$1 ]]; then
  echo "$(hostname): no Neuron environment with $1 here (${venv:-no /opt/aws_neuronx_venv_pytorch_*}); NEURON_VENV may name one" >&2
  exit 127
fi
# PyTorch Neuron looks for the compiler on PATH.
export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH"
exec "$@"

#!/bin/bash
# Runs a command of AWS's Neuron environment for PyTorch, the newest on this node. NEURON_VENV names another.
venv=${NEURON_VENV-}
if [[ -z $venv ]]; then
  # AWS's images have aws_neuronx_venv_pytorch_2_9 and the like; those with more words are for inference.
  shopt -s nullglob
  venv=$(printf '%s\n' "${HYPERPOD_OPT:-/opt}"/aws_neuronx_venv_pytorch_* | grep -E 'pytorch(_[0-9]+)+$' | sort -V | tail -n 1)
fi
if [[ -z $venv || ! -x $venv/bin/$1 ]]; then
  echo "$(hostname): no Neuron environment with $1 here (${venv:-no /opt/aws_neuronx_venv_pytorch_*}); NEURON_VENV may name one" >&2
  exit 127
fi
# The compiler is looked for on PATH.
export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH"
exec "$@"

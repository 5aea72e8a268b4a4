#!/bin/bash
# Runs a command from the newest AWS Neuron environment with PyTorch/XLA on this node; NEURON_VENV names another.
venv=${NEURON_VENV-}
if [[ -z $venv ]]; then
  # AWS's images have environments such as aws_neuronx_venv_pytorch_2_9; longer names are for inference. The trainers
  # need PyTorch/XLA, in place of which AWS has another PyTorch from 2.10 on (Neuron's release notes, PyTorch, 2.29.0).
  shopt -s nullglob
  while IFS= read -r one; do
    xla=("$one"/lib/python3*/site-packages/torch_xla)
    if ((${#xla[@]})); then venv=$one; fi
  done < <(printf '%s\n' "${HYPERPOD_OPT:-/opt}"/aws_neuronx_venv_pytorch_* | grep -E 'pytorch(_[0-9]+)+$' | sort -V)
fi
# A container brings its own, on PATH.
if [[ -z $venv && -n ${CONTAINER_IMAGE-} ]]; then exec "$@"; fi
if [[ -z $venv || ! -x $venv/bin/$1 ]]; then
  echo "$(hostname): no Neuron environment with $1 here (${venv:-no /opt/aws_neuronx_venv_pytorch_* with PyTorch/XLA}); NEURON_VENV may name one" >&2
  exit 127
fi
# PyTorch Neuron looks for the compiler on PATH.
export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH"
exec "$@"

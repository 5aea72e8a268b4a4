#!/bin/bash
# Slurm's TaskProlog: its output sets a task's environment, on the node that runs the task.
#
# A variable that the user's job sets stays as it is. One that an earlier task prolog of the same job has set (such as
# the batch script's, perhaps on another node) gets this node's value. HYPERPOD_DEFAULTS lists those.
files=("${HYPERPOD_TASK_ENV:-/etc/hyperpod/task.env}")
if ((${SLURM_STEP_NUM_NODES:-1} > 1)); then files+=("${files[0]%.env}-nodes.env"); fi
before=";${HYPERPOD_DEFAULTS-};"
now=
declare -A here=()
for file in "${files[@]}"; do
  [[ -r $file ]] || continue
  while IFS='=' read -r name value; do
    [[ -n $name ]] || continue
    here[$name]=1
    if [[ -z ${!name+set} || $before == *";$name=${!name};"* ]]; then
      echo "export $name=$value"
      now+="$name=$value;"
    fi
  done <"$file"
done
IFS=';' read -ra earlier <<<"${HYPERPOD_DEFAULTS-}"
for pair in "${earlier[@]}"; do
  name=${pair%%=*}
  if [[ -n $name && -z ${here[$name]-} && ${!name-} == "${pair#*=}" ]]; then
    echo "unset $name"
  fi
done
echo "export HYPERPOD_DEFAULTS=$now"
# Where ranks may tell of their training (training/report.py).
reports=${HYPERPOD_TRAINING:-/var/spool/hyperpod/training}/${SLURM_JOB_ID-none}
if [[ -d $reports ]]; then echo "export HYPERPOD_TRAINING_REPORTS=$reports"; fi

add() { # VARIABLE FOLDER...: append the folders that exist and are not yet in it
  local -n list=$1
  local folder changed=
  shift
  for folder in "$@"; do
    if [[ -d $folder && ":${list-}:" != *":$folder:"* ]]; then
      list="${list:+$list:}$folder"
      changed=1
    fi
  done
  if [[ -n $changed ]]; then echo "export ${!list}=$list"; fi
}
add PATH /opt/slurm/bin /opt/amazon/openmpi/bin /opt/amazon/efa/bin /opt/aws/neuron/bin /opt/hyperpod/bin
add LD_LIBRARY_PATH /opt/amazon/ofi-nccl/lib /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu /opt/amazon/efa/lib \
  /opt/amazon/openmpi/lib /opt/aws/neuron/lib
exit 0

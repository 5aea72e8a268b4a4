#!/bin/bash
# The end of a batch script whose ranks have failed: waits as long as Slurm may still requeue the job.
#
# When a node is lost, the other ranks fail at once, but Slurm requeues the job only after lostNodeSeconds, or after its
# own SlurmdTimeout. If the script exited earlier, the job would end for good. A node that shuts down still answers for
# some seconds after its ranks are gone. So this waits until all nodes have answered without a gap for a while.
grace=${HYPERPOD_WAIT_GRACE:-30} port=${HYPERPOD_WAIT_PORT:-22}
timeout=$(scontrol show config 2>/dev/null | sed -n 's/^SlurmdTimeout *= *\([0-9]*\).*/\1/p')
limit=${HYPERPOD_WAIT_SECONDS:-$((2 * ${timeout:-60} + 60))}

answers() { # A running host accepts or refuses a connection. Anything else, such as an unknown name, is no answer.
  local said
  # shellcheck disable=SC2016 # expanded by the inner bash
  said=$(LC_ALL=C timeout 2 bash -c 'exec 3<>"/dev/tcp/$1/$2"' _ "$1" "$port" 2>&1) || [[ $said == *refused* ]]
}

# By address, because a node's name in Slurm need not be its host name. By name if no controller answers.
mapfile -t nodes < <(sinfo -h -N -n "$SLURM_JOB_NODELIST" -o %o 2>/dev/null | sort -u)
if ((${#nodes[@]} == 0)); then mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST"); fi
said='' since=$SECONDS
while ((SECONDS < limit && SECONDS - since < grace)); do
  lost=''
  for node in "${nodes[@]}"; do
    if ! answers "$node"; then
      lost=$node
      break
    fi
  done
  if [[ -n $lost && -z $said ]]; then
    said="$lost does not answer; waiting for this job to go back into the queue"
    echo "$said"
  fi
  sleep 1
  if [[ -n $lost ]]; then since=$SECONDS; fi
done
exit 0

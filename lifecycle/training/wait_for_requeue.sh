#!/bin/bash
# The end of a batch script whose ranks have failed: waits while a node of the job does not answer, 180 s at most.
#
# When a node is lost the other ranks fail at once, and it takes until lostNodeSeconds, or Slurm's own SlurmdTimeout,
# before the job goes back into the queue. A script that ended before would end the job for good. Where all nodes
# answer, the failure is the job's own, and nothing is waited for.
limit=${HYPERPOD_WAIT_SECONDS:-180} port=${HYPERPOD_WAIT_PORT:-22}

silent() { # A living host accepts or refuses a connection; "No route" comes from our own kernel, for one that is gone.
  local said
  # shellcheck disable=SC2016 # expanded by the inner bash
  said=$(LC_ALL=C timeout 2 bash -c 'exec 3<>"/dev/tcp/$1/$2"' _ "$1" "$port" 2>&1)
  (($? == 124)) || [[ $said == *"No route to host"* ]]
}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
said=
while ((SECONDS < limit)); do
  lost=
  for node in "${nodes[@]}"; do
    if silent "$node"; then
      lost=$node
      break
    fi
  done
  if [[ -z $lost ]]; then exit 0; fi
  if [[ -z $said ]]; then echo "$lost does not answer; waiting for this job to go back into the queue"; fi
  said=1
  sleep 1
done
exit 0

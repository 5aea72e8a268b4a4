#!/bin/bash
# Slurm's Prolog: runs as root on a node before a job's first task there. A failure drains the node and puts the job
# back into the queue, so it says only what makes every job fail: no shared file system, or lost accelerators.
state=${HYPERPOD_STATE:-/etc/hyperpod}
mounts=${HYPERPOD_MOUNTS:-/proc/self/mounts}
shopt -s nullglob

fail() {
  echo "hyperpod prolog: $*" >&2
  logger -t hyperpod-prolog -- "$*" 2>/dev/null
  exit 1
}

# prolog.env has what the node had when it booted: a device that was missing then is in its summary already.
shared='' devices='' pattern='' scratch=''
if [[ -r $state/prolog.env ]]; then
  # shellcheck source=/dev/null
  source "$state/prolog.env"
fi
if [[ -n $shared ]] && ! grep -q " $shared " "$mounts"; then fail "$shared is not mounted"; fi
if [[ -n $pattern ]]; then
  # shellcheck disable=SC2206 # the pattern is meant to be expanded
  found=($pattern)
  if ((${#found[@]} < devices)); then fail "${#found[@]} of $devices devices $pattern are left"; fi
fi
# Where the image mounts the disks itself, it is a link.
if [[ -n $scratch && -n ${SLURM_JOB_ID-} ]] && grep -q " $(readlink -f "$scratch") " "$mounts"; then
  install -d -m 0700 -o "${SLURM_JOB_UID:-0}" "$scratch/job-$SLURM_JOB_ID"
fi
exit 0

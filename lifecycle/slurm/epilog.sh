#!/bin/bash
# Slurm's Epilog: runs as root on a node after a job's last task there, and takes away what the job left on it.
state=${HYPERPOD_STATE:-/etc/hyperpod}
scratch=''
if [[ -r $state/prolog.env ]]; then
  # shellcheck source=/dev/null
  source "$state/prolog.env"
fi
jobs=$scratch/jobs
# As the prolog made it: no link, and not another user's.
if [[ -n $scratch && ${SLURM_JOB_ID-} =~ ^[0-9]+$ && -d $jobs && ! -L $jobs && $(stat -c %u -- "$jobs") == "$EUID" ]]; then
  rm -rf -- "${jobs:?}/$SLURM_JOB_ID"
fi
exit 0

#!/bin/bash
# Slurm's Epilog: runs as root on a node after a job's last task there, and deletes the job's scratch folder.
state=${HYPERPOD_STATE:-/etc/hyperpod}
scratch=''
if [[ -r $state/prolog.env ]]; then
  # shellcheck source=/dev/null
  source "$state/prolog.env"
fi
jobs=$scratch/jobs
# Only a folder that the prolog made: not a link, and not another user's.
if [[ -n $scratch && ${SLURM_JOB_ID-} =~ ^[0-9]+$ && -d $jobs && ! -L $jobs && $(stat -c %u -- "$jobs") == "$EUID" ]]; then
  rm -rf -- "${jobs:?}/$SLURM_JOB_ID"
fi
job_metrics=${0%/*}/hyperpod-job-metrics
if [[ -x $job_metrics ]]; then "$job_metrics" end; fi
exit 0

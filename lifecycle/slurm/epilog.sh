#!/bin/bash
# Slurm's Epilog: runs as root on a node after a job's last task there, and deletes the job's scratch folder.
state=${HYPERPOD_STATE:-/etc/hyperpod}
scratch=''
if [[ -r $state/prolog.env ]]; then
  # shellcheck source=/dev/null
  source "$state/prolog.env"
fi
# Only in a folder that the prolog made, and by a path that nobody can exchange meanwhile (prolog.sh).
if [[ -n $scratch && ${SLURM_JOB_ID-} =~ ^[0-9]+$ ]]; then
  jobs=$(readlink -f "$scratch")/jobs
  (
    cd -P -- "$jobs" 2>/dev/null && [[ $(readlink /proc/self/cwd) == "$jobs" && $(stat -c %u .) == "$EUID" ]] &&
      rm -rf -- "./$SLURM_JOB_ID"
  )
fi
job_metrics=${0%/*}/hyperpod-job-metrics
if [[ -x $job_metrics ]]; then "$job_metrics" end; fi
exit 0

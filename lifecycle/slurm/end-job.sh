#!/bin/bash
# The only command that the controller's root may run here over ssh (hyperpod-requeue): it ends a job's processes.
job=${SSH_ORIGINAL_COMMAND-}
if [[ ! $job =~ ^[0-9]+$ ]]; then
  echo "root's key ends the job of this number, and does nothing else; log in as ubuntu" >&2
  exit 2
fi
# First end the job's processes, found by the variable that all of them have. Without their slurmstepd nothing else
# would end them, and to ask it for them (scontrol listpids) could block. Slurm does the rest, epilog included.
grep -lzxs "SLURM_JOB_ID=$job" /proc/[0-9]*/environ | while IFS= read -r file; do
  pid=${file#/proc/}
  kill -KILL "${pid%/environ}" 2>/dev/null
done
pkill -KILL -f "^slurmstepd: .${job}[.]"
exit 0

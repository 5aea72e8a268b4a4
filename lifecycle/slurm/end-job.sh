#!/bin/bash
# All that root of the controller may do here by ssh (hyperpod-requeue): end what a job has left on this node.
job=${SSH_ORIGINAL_COMMAND-}
if [[ ! $job =~ ^[0-9]+$ ]]; then
  echo "root's key ends the job of this number, and does nothing else; log in as ubuntu" >&2
  exit 2
fi
# The job's processes first, by the variable that all of them have: without their slurmstepd nobody else would end them,
# and asking it for them (scontrol listpids) waits as long as it does. Slurm does the rest, epilog included.
grep -lzxs "SLURM_JOB_ID=$job" /proc/[0-9]*/environ | while IFS= read -r file; do
  pid=${file#/proc/}
  kill -KILL "${pid%/environ}" 2>/dev/null
done
pkill -KILL -f "^slurmstepd: .${job}[.]"
exit 0

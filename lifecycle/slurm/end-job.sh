#!/bin/bash
# What the controller's root may say here over ssh (hyperpod-requeue), and nothing else. A number ends that job's
# processes. "rejoin", to a node that was cut off and is down, ends those of all jobs and has slurmd register anew.
job=${SSH_ORIGINAL_COMMAND-}
if [[ $job == rejoin ]]; then
  # After a reboot slurmd registers by itself, and may have a new job already.
  since=$(systemctl show -p ActiveEnterTimestampMonotonic --value slurmd)
  read -r up _ </proc/uptime
  if ((${up%.*} - ${since:-0} / 1000000 < 30)); then exit 0; fi
  # First, or it would report the end of a job that runs elsewhere by now.
  pkill -KILL -f '^slurmstepd: '
  job='[0-9]*'
elif [[ ! $job =~ ^[0-9]+$ ]]; then
  echo "root's key ends the job of this number, and does nothing else; log in as ubuntu" >&2
  exit 2
fi
# First end the job's processes, found by the variable that all of them have. Without their slurmstepd nothing else
# would end them, and to ask it for them (scontrol listpids) could block. Slurm does the rest, epilog included.
grep -lzxs "SLURM_JOB_ID=$job" /proc/[0-9]*/environ | while IFS= read -r file; do
  pid=${file#/proc/}
  kill -KILL "${pid%/environ}" 2>/dev/null
done
if [[ $job == '[0-9]*' ]]; then
  # slurmd, too, remembers which jobs it has, and would refuse to start them a second time.
  systemctl restart slurmd
  exit
fi
pkill -KILL -f "^slurmstepd: .${job}[.]"
exit 0

#!/bin/bash
# Whether slurmctld starts with a slurm.conf ($1), tried in a network of its own, which has this node's address ($2).
# Exit status: 0 it does; 1 it ends, and its words follow; 2 neither within $3 seconds, or it could not be tried.
conf=$1 address=$2 seconds=$3
if ! { ip link set lo up && ip address add "$address/32" dev lo; }; then exit 2; fi
slurmctld -D -f "$conf" >"$conf.said" 2>&1 &
pid=$!
trap 'kill -KILL "$pid" 2>/dev/null' EXIT
for ((tick = 0; tick < seconds * 20; tick++)); do
  if grep -qE 'Running as primary controller|running in background mode' "$conf.said"; then exit 0; fi
  if ! kill -0 "$pid" 2>/dev/null; then
    grep -E 'error:|fatal:' "$conf.said"
    exit 1
  fi
  sleep 0.05
done
exit 2

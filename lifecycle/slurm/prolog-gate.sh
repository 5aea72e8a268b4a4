#!/bin/bash
# Slurm's Prolog where HyperPod's image starts slurmd (slurm.setup: image). slurmctld sends this file to each slurmd, so
# a node has it before the lifecycle scripts have installed anything there. A job waits here until they are done: what
# keeps it from the role of the node, its user and its variables come from them. Once they are, it costs nothing.
state=${HYPERPOD_STATE:-/etc/hyperpod}
health=${HYPERPOD_HEALTH:-/run/hyperpod-health}
# Less than BatchStartTimeout in slurm/conf.py, after which slurmctld would take the job for lost.
end=$((SECONDS + ${HYPERPOD_GATE_SECONDS:-600}))
until [[ -e $state/prolog.env ]]; do
  if ((SECONDS >= end)); then
    # Drains the node and requeues the job. The scripts give the node back when they succeed, or the health check does.
    mkdir -p "$health" && echo 'the lifecycle scripts have not ended' >"$health/prolog-failed"
    exit 1
  fi
  sleep 0.5
done
exec "${HYPERPOD_BIN:-/opt/hyperpod/bin}/hyperpod-prolog"

#!/bin/bash
# Slurm's HealthCheckProgram: runs as root on a worker, every few minutes and when slurmd starts. slurmd registers only
# after that first run, so it looks at what the prolog looks at, and at the rest only where something of that is wrong.
here=${0%/*}
mark=${HYPERPOD_HEALTH:-/run/hyperpod-health}/started
if [[ ! -e $mark ]]; then
  mkdir -p "${mark%/*}"
  : >"$mark"
  SLURM_JOB_ID='' "$here/hyperpod-prolog" >/dev/null 2>&1 && exit 0
fi
exec "$here/hyperpod-health"

#!/bin/bash
# slurmd's ExecStartPre: finds where to fetch the configuration. A replacement controller has a new address, which it
# writes to the shared file system ($1) before its slurmctld starts. This node's lifecycle scripts do not run again.
file=${HYPERPOD_CONTROLLERS_FILE:-/run/hyperpod-controllers}
address=$(timeout --kill-after=1 10 sed -n 's/.*"address": *"\([^"]*\)".*/\1/p' "$1" 2>/dev/null)
if [[ -n $address && ",$HYPERPOD_CONTROLLERS," != *",$address,"* ]]; then
  echo "HYPERPOD_CONTROLLERS=$address,$HYPERPOD_CONTROLLERS" >"$file"
fi
exit 0

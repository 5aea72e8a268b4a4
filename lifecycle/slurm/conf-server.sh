#!/bin/bash
# slurmd's ExecStartPre: where to fetch the configuration from. A controller that replaces another has an address of its
# own, and says so on the shared file system ($1) before its slurmctld starts; this node's scripts do not run again.
file=${HYPERPOD_CONTROLLERS_FILE:-/run/hyperpod-controllers}
address=$(timeout --kill-after=1 10 sed -n 's/.*"address": *"\([^"]*\)".*/\1/p' "$1" 2>/dev/null)
if [[ -n $address && ",$HYPERPOD_CONTROLLERS," != *",$address,"* ]]; then
  echo "HYPERPOD_CONTROLLERS=$address,$HYPERPOD_CONTROLLERS" >"$file"
fi
exit 0

#!/bin/bash
# slurmctld's ExecStartPre: HyperPod's agent may have written slurm.conf ($1) anew, with a topology that has no map.
# What else it has changed, slurmctld starts with, and hyperpod-requeue settles.
if grep -qiE '^[[:space:]]*(TopologyPlugin|PartitionName=.*[[:space:]]Topology)[[:space:]]*=' "$1"; then
  exec "${0%/*}/hyperpod-configure"
fi
exit 0

#!/bin/bash
# slurmctld's ExecStartPre: HyperPod's agent may have rewritten slurm.conf ($1) with a topology that has no file.
# slurmctld can start with the agent's other changes, which hyperpod-requeue handles later.
if grep -qiE '^[[:space:]]*(TopologyPlugin|PartitionName=.*[[:space:]]Topology)[[:space:]]*=' "$1"; then
  exec "${0%/*}/hyperpod-configure"
fi
exit 0

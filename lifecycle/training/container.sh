# shellcheck shell=bash
# Sourced by job files: the options of srun that run a job's tasks in CONTAINER_IMAGE, as the array `container`, which
# is empty without one. CONTAINER_MOUNTS has further mounts, as SOURCE:TARGET,...
#
# A container sees the shared file system, the folder with the job's files, and what /etc/enroot/mounts.d has.
# shellcheck disable=SC2034 # the job file uses it
container=()
if [[ -n ${CONTAINER_IMAGE-} ]]; then
  if ! srun --help | grep -q -- --container-image; then
    echo "this Slurm has no Pyxis, which CONTAINER_IMAGE needs: is hyperpod:slurm.containers true?" >&2
    exit 1
  fi
  if [[ $CONTAINER_IMAGE == *.sqsh && ! -r $CONTAINER_IMAGE ]]; then
    echo "$CONTAINER_IMAGE cannot be read; hyperpod-import-image IMAGE $CONTAINER_IMAGE makes it" >&2
    exit 1
  fi
  if [[ $CONTAINER_IMAGE == *.sqsh && -x /opt/hyperpod/bin/hyperpod-check-image ]]; then
    /opt/hyperpod/bin/hyperpod-check-image "$CONTAINER_IMAGE"
  elif [[ $CONTAINER_IMAGE != *.sqsh ]]; then
    echo "$CONTAINER_IMAGE is not checked for this node's driver and EFA, as a file is that hyperpod-import-image makes of it" >&2
  fi
  here=${HERE:-$SLURM_SUBMIT_DIR}
  # shellcheck disable=SC2034
  container=("--container-image=$CONTAINER_IMAGE" "--container-workdir=$here"
    "--container-mounts=/fsx:/fsx,$here:$here${CONTAINER_MOUNTS:+,$CONTAINER_MOUNTS}")
fi

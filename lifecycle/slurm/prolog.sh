#!/bin/bash
# Slurm's Prolog: runs as root on a node before a job's first task there. A failure drains the node and requeues the
# job, not held (slurm/conf.py), so it fails only for what would make every job fail: no shared file system, lost
# accelerators, or a node that the health check has found bad and could not drain.
state=${HYPERPOD_STATE:-/etc/hyperpod}
mounts=${HYPERPOD_MOUNTS:-/proc/self/mounts}
shopt -s nullglob

health=${HYPERPOD_HEALTH:-/run/hyperpod-health}

fail() {
  echo "hyperpod prolog: $*" >&2
  logger -t hyperpod-prolog -- "$*" 2>/dev/null
  # By this hyperpod-health knows whose "Prolog error" it is, and resumes the node when it is well again.
  if [[ -n ${SLURM_JOB_ID-} ]] && mkdir -p "$health"; then echo "$*" >"$health/prolog-failed"; fi
  exit 1
}

# prolog.env has what the node had at boot. The node's summary already names a device that was missing then.
shared='' devices='' pattern='' scratch='' containers=''
if [[ -r $state/prolog.env ]]; then
  # shellcheck source=/dev/null
  source "$state/prolog.env"
fi
# What mounts it on demand is in the list, too. If nobody has used it since the boot, the first look mounts it.
is_mounted() { grep " $shared " "$mounts" | grep -qv " $shared autofs "; }
if [[ -n $shared ]] && ! is_mounted; then
  timeout --kill-after=1 20 stat --file-system -- "$shared" >/dev/null 2>&1
  is_mounted || fail "$shared is not mounted"
fi
if [[ -n $pattern ]]; then
  # shellcheck disable=SC2206 # the pattern is meant to be expanded
  found=($pattern)
  if ((${#found[@]} < devices)); then fail "${#found[@]} of $devices devices $pattern are left"; fi
fi
# The last health check found the node bad, and could not tell the controller.
if [[ -n ${SLURM_JOB_ID-} && -s $health/no-jobs ]]; then fail "$(head -n 1 "$health/no-jobs")"; fi

# Whether the path is a folder that this user owns, and not a link.
owned() { [[ -d $2 && ! -L $2 && $(stat -c %u -- "$2") == "$1" ]]; }

# One prolog at a time, with a bounded wait. Anybody may lock what they may read, and hold it, so nobody else may read it.
alone() {
  local lock file=$state/prolog.lock
  umask 077
  exec {lock}<>"$file" && chmod 0600 -- "$file" && flock -w 30 "$lock" && return
  echo "another prolog holds $file"
  return 1
}

# NAME, which USER owns, in DISK/FOLDER, which is root's. Anybody may write to a disk: whatever somebody else has put in
# the place of the two is deleted, and never used. From the change of folder on, who may rename things on the disk can
# lead root nowhere else.
make_folder() { # DISK FOLDER MODE NAME USER
  local disk folder name=./$4
  disk=$(readlink -f "$1") && folder=$disk/$2 && alone || return
  owned "$EUID" "$folder" || { rm -rf -- "$folder" && mkdir -m "$3" -- "$folder"; } || return
  cd -P -- "$folder" || return
  if [[ $(readlink /proc/self/cwd) != "$folder" || -z $(find . -maxdepth 0 -uid "$EUID" ! -perm /022) ]]; then
    echo "$folder was exchanged"
    return 1
  fi
  owned "$5" "$name" || { rm -rf -- "$name" && mkdir -m 0700 -- "$name" && chown -h -- "$5" "$name"; }
}

# If the image mounts the disks itself, $scratch is a link. A full disk is no reason to drain the node.
if [[ -n $scratch && ${SLURM_JOB_ID-} =~ ^[0-9]+$ ]] && grep -q " $(readlink -f "$scratch") " "$mounts"; then
  why=$(make_folder "$scratch" jobs 0755 "$SLURM_JOB_ID" "${SLURM_JOB_UID:-0}" 2>&1) ||
    logger -t hyperpod-prolog -- "no $scratch/jobs/$SLURM_JOB_ID: $why" 2>/dev/null
fi

# For Enroot, a folder that only the job's user may open, below one of root's, on the fastest disk that is mounted.
# $containers is in /run, so that nobody else can put a link there.
make_containers() {
  local user=$SLURM_JOB_UID disk=${HYPERPOD_ROOT_DISK:-/var/lib} folder
  for folder in /opt/sagemaker "$scratch"; do
    folder=$(readlink -f "$folder")
    if [[ -n $folder ]] && grep -q " $folder " "$mounts"; then disk=$folder; fi
  done
  local mine=$disk/enroot/$user
  make_folder "$disk" enroot 0711 "$user" "$user" || return
  mkdir -p -- "$containers" && chmod 0755 -- "$containers" || return
  # Pyxis has made a folder in memory where an earlier prolog could not make the link.
  if [[ ! -L $containers/$user ]]; then rmdir -- "$containers/$user" 2>/dev/null; fi
  if [[ $(readlink "$containers/$user") != "$mine" ]]; then ln -sfnT -- "$mine" "$containers/$user"; fi
}
if [[ -n $containers && ${SLURM_JOB_UID-} =~ ^[0-9]+$ ]]; then
  why=$(make_containers 2>&1) || logger -t hyperpod-prolog -- "no folder for containers: $why" 2>/dev/null
fi
job_metrics=${0%/*}/hyperpod-job-metrics
if [[ -x $job_metrics ]]; then "$job_metrics" begin; fi
exit 0

#!/bin/bash
# own_folder.sh FOLDER [VARIABLE]: creates a job's folder for checkpoints or downloads. Another user could guess its name
# and create it first. Most formats of checkpoints and models can contain code, which this job would run as the user who
# submitted it. VARIABLE is what names another folder.
(umask 022 && mkdir -p -- "$1")
if [[ -L $1 || ! -O $1 ]]; then
  echo "$1 is a link or somebody else's: ${2:-OUT}=FOLDER names one of your own" >&2
  exit 1
fi

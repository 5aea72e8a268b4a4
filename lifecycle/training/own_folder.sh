#!/bin/bash
# Makes a job's folder of checkpoints. Anybody can guess its name and make it first: most formats of checkpoints can
# have code, which this job would run as whoever has submitted it.
mkdir -p -- "$1"
if [[ -L $1 || ! -O $1 ]]; then
  echo "$1 is a link or somebody else's: OUT=FOLDER names one of your own" >&2
  exit 1
fi

#!/bin/bash
# Creates a job's checkpoint folder. Another user could guess its name and create it first. Most checkpoint formats can
# contain code, which this job would run as the user who submitted it.
mkdir -p -- "$1"
if [[ -L $1 || ! -O $1 ]]; then
  echo "$1 is a link or somebody else's: OUT=FOLDER names one of your own" >&2
  exit 1
fi

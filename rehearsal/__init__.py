"""The rehearsal: the real program, run against an embedded AWS account on this machine."""

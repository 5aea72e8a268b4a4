"""The rehearsal: runs the real program against an embedded AWS account on this machine."""

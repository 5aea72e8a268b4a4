"""Encryption, recorded sessions, and who may write the scripts that nodes run."""

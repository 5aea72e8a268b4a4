"""Encryption, recorded sessions, and the permitted writers of the nodes' scripts."""

"""Deploying and destroying a stack, and what is left of it or went wrong."""

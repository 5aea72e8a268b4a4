"""Alerts: their rules, which of them a stack gets, and who is told."""

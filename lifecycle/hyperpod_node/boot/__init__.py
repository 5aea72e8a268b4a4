"""The boot: the steps, their order, and the summary."""

"""Alert rules, and which of them a stack gets."""

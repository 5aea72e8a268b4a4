"""The operating system: clock, kernel settings, installed programs and rotated logs."""

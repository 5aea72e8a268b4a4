"""The machine under the steps: its files, commands, units and clocks, and AWS's view of it."""

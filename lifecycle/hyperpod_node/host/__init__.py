"""The machine under the steps: its files, commands, units and clocks, and what AWS says of it."""

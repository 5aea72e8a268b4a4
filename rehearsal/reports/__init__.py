"""The rehearsal's output: in the terminal, and as an HTML page."""

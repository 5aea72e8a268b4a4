"""What a rehearsal shows: in the terminal, and as a page."""

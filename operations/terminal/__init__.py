"""What a verb shows and asks at a terminal, and how its command line is read."""

"""What runs the program: the embedded engine, and the real one with the embedded account as its provider."""

"""The file systems at /fsx and /home."""

"""File systems and disks: /fsx, /home, /scratch, and the disks of pods."""

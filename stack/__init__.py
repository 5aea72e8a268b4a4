"""What both operations and the rehearsal need of a stack: project, commands, events, state, durations, interrupts."""

"""What a task shows of a finished network."""

"""Which classes a network takes for which."""

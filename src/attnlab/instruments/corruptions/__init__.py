"""The result of a network on corrupted images."""

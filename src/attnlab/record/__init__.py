"""One recorded run of a network: its example, its graph, its operations, its cost."""

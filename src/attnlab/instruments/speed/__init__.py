"""How fast a network with gates is, and without."""

"""Trajectories of a network's states: the stiffness of its steps, exact, in constant memory."""

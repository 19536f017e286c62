"""Benchmarks: four programs with subcommands.

    python -m benchmarks.speed        gates, networks, operators, capture, training
    python -m benchmarks.coverage     in how many networks steps are found and take a gate
    python -m benchmarks.stiffness    what stiffness tells, and how exact it is
    python -m benchmarks.se_out       squeeze-and-excitation taken out of trained networks

Each prints tables and writes JSON. Networks and settings are tables in `benchmarks/data`.
"""

"""`attnlab doctor`: versions, devices, threads, optional parts, one fix line per problem."""

from __future__ import annotations


def doctor() -> None:
    """Show versions, devices, threads and optional parts, with one fix line per problem."""

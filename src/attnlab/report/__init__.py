"""Pages of what is on disk: nothing here knows a network, a task, or how to run a study.

Figures are pure functions from data to a Vega-Lite specification.
"""

"""Pages of studies, runs and comparisons, put together from the sections of instruments.

They are made of what is on disk. Figures are pure functions from data to a Vega-Lite specification.
"""

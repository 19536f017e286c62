"""Figures: Vega-Lite specifications to SVG, and dense pictures. Knows no network."""

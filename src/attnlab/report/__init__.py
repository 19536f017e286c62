"""Figures and pages. Figures are pure functions from data to a Vega-Lite specification."""

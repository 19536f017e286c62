"""Pages and figures: their parts, Vega-Lite specifications to SVG, dense pictures, the template.

Knows no network and no instrument.
"""

"""The operators on GPUs, in Triton. Importing this imports `triton`: it happens on first use."""

from attnlab.evolution._triton.launch import TRITON as TRITON

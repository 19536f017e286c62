"""Whether a backward pass will run something again (activation checkpointing).

What is known while a call runs is not known when a part of it runs again by itself: nobody calls
the module around that part once more.
"""

from __future__ import annotations

import sys
from types import CodeType

from torch.autograd.function import FunctionCtx
from torch.utils import checkpoint


def runs_again(*wholes: CodeType) -> bool:
    """Whether this is in a part of the call of one of `wholes`, functions, that is checkpointed
    alone."""
    frame = sys._getframe(1)
    while frame.f_code not in wholes and frame.f_back is not None:
        code = frame.f_code
        # A function with a backward of its own: what torch's reentrant checkpoints are made of, and
        # those of other libraries.
        own = "ctx" in code.co_varnames and isinstance(frame.f_locals.get("ctx"), FunctionCtx)
        if own or code is checkpoint.checkpoint.__code__:
            return True
        frame = frame.f_back
    return False

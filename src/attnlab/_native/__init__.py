"""C++ kernels: found or built on first use, never on import.

`ATTNLAB_NATIVE` chooses: `auto` (the default) loads an object that came with the package, else one
from the cache, else builds it with the machine's compiler; `prebuilt` never builds; `off` uses pure
torch. Whatever fails, pure torch remains and the status says why.
"""

from attnlab._native.kernels import Kernels as Kernels
from attnlab._native.kernels import NativeStatus as NativeStatus

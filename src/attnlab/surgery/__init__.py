"""Changes of a network, on a copy: insert, fold, shorten, add noise, repair.

Each decides, performs and verifies; what they share, answers, changes and receipts, is in the files
of this room.
"""

from typing import TYPE_CHECKING

from attnlab._folders import reached

if TYPE_CHECKING:
    from attnlab.surgery import folding as folding
    from attnlab.surgery import insertion as insertion
    from attnlab.surgery import noise as noise
    from attnlab.surgery import repair as repair
    from attnlab.surgery import shortening as shortening

__getattr__, __dir__ = reached(__name__, "folding", "insertion", "noise", "repair", "shortening")

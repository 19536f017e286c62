"""The id of a run, from what it is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FILE = "identity.json"


def run_id_of(identity: Mapping[str, Any]) -> str:
    """Twelve hex digits of the content of identity.json."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]

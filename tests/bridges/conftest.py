"""The package may not fetch or send anything; it keeps its settings in a folder of the test."""

from __future__ import annotations

import os
import tempfile

os.environ["YOLO_OFFLINE"] = "True"
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.mkdtemp(prefix="yolo-"))
os.environ["YOLO_AUTOINSTALL"] = "False"
os.environ["YOLO_VERBOSE"] = "False"

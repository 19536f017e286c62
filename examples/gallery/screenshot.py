"""The demo's page, as a browser shows it: its beginning in light, a later section in dark."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
LIGHT, DARK = 1, 0  # Blink's preferredColorScheme


def screenshots(page: Path, folder: Path) -> list[Path]:
    """`demo-report.png` and `demo-report-dark.png`; none where there is no Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("  no Chromium: the pictures of the page stay as they are")
        return []
    text = page.read_text(encoding="utf-8")
    # Headless screenshots begin at the top, so what comes before the section is taken out.
    later = text.replace("</head>", "<style>#s1, #s2, #s3 { display: none }</style></head>")
    return [
        _screenshot(program, text, folder / "demo-report.png", 780, LIGHT),
        _screenshot(program, later, folder / "demo-report-dark.png", 960, DARK),
    ]


def _screenshot(program: str, html: str, file: Path, height: int, scheme: int) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        page.write_text(html, encoding="utf-8")
        command = [
            program,
            *FLAGS,
            f"--user-data-dir={folder}/profile",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--window-size=1180,{height}",
            f"--screenshot={picture}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        # A palette: a third of the bytes, and the page has few colours.
        colours = Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        colours.save(file, optimize=True)
    return file

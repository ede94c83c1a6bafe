"""Images go from a log into files."""

from __future__ import annotations

import base64
from pathlib import Path

from prime.views.transcript import Image


def keep(folder: Path, image: Image) -> Path:
    """Write an image into ``folder`` and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / image.name
    file.write_bytes(base64.b64decode(image.part.data))
    return file

"""An svg image as a png, made by a child process: an svg is a program, and may be a hostile one.

This file is also the child's program. It may use only so much memory and time, reads no file and no address that the
image names, and draws at most :data:`MAX_SIDE` pixels a side.
"""

from __future__ import annotations

import asyncio
import re
import resource
import sys
from contextlib import suppress
from xml.etree import ElementTree

#: Pixels of the longer side of a picture.
MAX_SIDE = 1_568

#: Characters of a source that is drawn.
MAX_SOURCE = 4_000_000

#: Bytes of a picture that is kept.
MAX_PNG = 8_000_000

#: Seconds for one picture.
TIME_LIMIT_S = 5.0

#: Bytes of address space of the child.
_MEMORY = 1 << 30

#: Pixels a side when the image does not say its size.
_SIDE = 512.0

_LENGTH = re.compile(r"\s*\+?(\d+(?:\.\d*)?|\.\d+)\s*(px|pt|mm|cm|in)?\s*")
_UNITS = {None: 1.0, "px": 1.0, "pt": 4 / 3, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0}


async def png(svg: str) -> bytes | None:
    """Return ``svg`` as a png; None when it cannot be drawn within the limits, or the library for it is missing."""
    if len(svg) > MAX_SOURCE:
        return None
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", __file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            drawn, _ = await child.communicate(svg.encode(errors="replace"))
    except TimeoutError:
        return None
    finally:
        with suppress(ProcessLookupError):  # it has ended
            child.kill()
        await child.wait()
    return drawn if child.returncode == 0 and drawn.startswith(b"\x89PNG") and len(drawn) <= MAX_PNG else None


def _draw() -> None:
    """Read an svg from standard input and write the png to standard output."""
    import resvg_py  # noqa: PLC0415 - the host never loads it

    with suppress(ValueError):  # macOS knows no limit of this kind
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(TIME_LIMIT_S), int(TIME_LIMIT_S)))
    root = ElementTree.fromstring(sys.stdin.buffer.read())
    # the renderer reads whatever file a link names
    for element in root.iter():
        for name in [name for name in element.attrib if name.rpartition("}")[2] == "href"]:
            if not element.attrib[name].lstrip().startswith(("#", "data:image/")):
                del element.attrib[name]
    width, height = _size(root)
    factor = min(MAX_SIDE / max(width, height), 1.0)
    drawn = resvg_py.svg_to_bytes(
        svg_string=ElementTree.tostring(root, encoding="unicode"),
        width=max(round(width * factor), 1),
        height=max(round(height * factor), 1),
        background="white",
        dpi=96,
    )
    sys.stdout.buffer.write(drawn)


def _size(root: ElementTree.Element) -> tuple[float, float]:
    box = [float(number) for number in re.findall(r"[-+.\deE]+", root.get("viewBox", ""))[2:4]]
    width, height = (_length(root.get(name)) for name in ("width", "height"))
    if len(box) < 2 or min(box) <= 0:
        return width or height or _SIDE, height or width or _SIDE
    ratio = box[0] / box[1]
    if width and height:
        return width, height
    if width or height:
        return width or height * ratio, height or width / ratio
    return box[0], box[1]


def _length(text: str | None) -> float:
    """Return a length in pixels, 0 when it is missing or relative."""
    found = _LENGTH.fullmatch(text or "")
    return float(found[1]) * _UNITS[found[2]] if found is not None else 0.0


if __name__ == "__main__":
    _draw()

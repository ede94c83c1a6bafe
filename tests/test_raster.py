"""Svg images: drawn within limits, by a child that reads nothing else."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from prime import raster

pytestmark = pytest.mark.anyio

NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
RED = '<rect width="100%" height="100%" fill="red"/>'


def size(png: bytes | None) -> tuple[int, ...]:
    assert png is not None
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('width="30" height="20"', (30, 20)),
        ('width="72pt" height="36pt"', (96, 48)),
        ('viewBox="0 0 200 100"', (200, 100)),
        ('viewBox="0 0 200 100" width="50"', (50, 25)),
        ('width="100%" height="100%"', (512, 512)),
        ('width="1000000" height="10"', (raster.MAX_SIDE, 1)),
        ('width="50000" height="50000"', (raster.MAX_SIDE, raster.MAX_SIDE)),
    ],
)
async def test_it_is_drawn_at_its_size_within_the_limit(attributes: str, expected: tuple[int, int]) -> None:
    assert size(await raster.png(f"<svg {NAMES} {attributes}>{RED}</svg>")) == expected


@pytest.mark.parametrize("link", ["xlink:href", "href"])
@pytest.mark.parametrize("scheme", ["", "file://"])
async def test_no_file_is_read(link: str, scheme: str, tmp_path: Path) -> None:
    red = await raster.png(f'<svg {NAMES} width="9" height="9">{RED}</svg>')
    assert red is not None
    (tmp_path / "red.png").write_bytes(red)

    def image(source: str) -> str:
        return f'<svg {NAMES} width="9" height="9"><image {link}="{source}" width="9" height="9"/></svg>'

    empty = await raster.png(f'<svg {NAMES} width="9" height="9"></svg>')
    inside = image("data:image/png;base64," + base64.b64encode(red).decode())
    assert await raster.png(inside) != empty  # what it brings along is drawn
    outside = image(f"{scheme}{tmp_path}/red.png")
    assert await raster.png(outside) == empty
    nested = image("data:image/svg+xml;base64," + base64.b64encode(outside.encode()).decode())
    assert await raster.png(nested) == empty


async def test_a_hostile_one_is_given_up() -> None:
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE svg [<!ENTITY a0 "x">{entities}]><svg {NAMES} width="9" height="9"><text>&a11;</text></svg>'
    file = f'<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg {NAMES}><text>&x;</text></svg>'
    uses = "".join(f'<g id="a{n}">{f"""<use xlink:href="#a{n - 1}"/>""" * 10}</g>' for n in range(1, 12))
    crowd = f'<svg {NAMES} width="9" height="9"><rect id="a0" width="1" height="1"/>{uses}</svg>'
    for source in (bomb, file, crowd, "", "<p>", "\ud800", "x" * (raster.MAX_SOURCE + 1)):
        assert await raster.png(source) is None

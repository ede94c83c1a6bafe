"""Reads the header of a GGUF model file: what the model is called and how its chat template goes.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from prime.errors import ConfigError

#: Scalar value types by their number: how each is unpacked.
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
#: Longest text read, in bytes; a chat template has some thousands. A damaged file must not fill the memory.
_LONGEST_TEXT = 16 * 1024 * 1024


def read_header(path: Path, wanted: Collection[str]) -> dict[str, str | int | float | bool]:
    """Return those of the ``wanted`` entries that the file has. Reading stops when all are found.

    Raises:
        ConfigError: the file cannot be read or is not a GGUF file.
    """
    try:
        with path.open("rb") as file:
            return _entries(file, wanted)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this model: {error.strerror}") from None
    except (struct.error, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: not a whole GGUF file: {error}") from None


def _entries(file: BinaryIO, wanted: Collection[str]) -> dict[str, str | int | float | bool]:
    magic, version = struct.unpack("<4sI", file.read(8))
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"it begins with {magic!r}, version {version}; versions 2 and 3 are known")
    _, count = struct.unpack("<QQ", file.read(16))
    found: dict[str, str | int | float | bool] = {}
    for _ in range(count):
        name = _text(file)
        (kind,) = struct.unpack("<I", file.read(4))
        if name not in wanted:
            _skip(file, kind)
        elif kind == _STRING:
            found[name] = _text(file)
        elif kind in _SCALARS:
            found[name] = _scalar(file, kind)
        else:
            _skip(file, kind)
        if len(found) == len(wanted):
            break
    return found


def _scalar(file: BinaryIO, kind: int) -> int | float | bool:
    (value,) = struct.unpack(_SCALARS[kind], file.read(struct.calcsize(_SCALARS[kind])))
    assert isinstance(value, (int, float))
    return value


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST_TEXT:
        raise ValueError(f"a text of {length} bytes")
    data = file.read(length)
    if len(data) < length:
        raise ValueError("it ends in the middle of a text")
    return data.decode("utf-8", "replace")


def _skip(file: BinaryIO, kind: int) -> None:
    if kind in _SCALARS:
        file.seek(struct.calcsize(_SCALARS[kind]), 1)
    elif kind == _STRING:
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(length, 1)
    elif kind == _ARRAY:
        item, length = struct.unpack("<IQ", file.read(12))
        if item in _SCALARS:
            file.seek(length * struct.calcsize(_SCALARS[item]), 1)
            return
        for _ in range(length):
            _skip(file, item)
    else:
        raise ValueError(f"a value of unknown type {kind}")

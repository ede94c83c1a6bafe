"""Stands in for a llama.cpp server: a real process with its command line, which answers by saying how it was started.

Also writes the small model files that such a server would load.
"""

import json
import os
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from servers import Answer, ModelServer

#: A model file whose name contains this makes the server end while it starts.
BROKEN = "broken"

SCRIPT = """\
#!{python}
import sys
from itertools import pairwise
sys.path.insert(0, {folder!r})
import llama_double
llama_double.main(sys.argv[1:])
"""


def install(folder: Path) -> Path:
    """Put the program into ``folder`` and return its path."""
    program = folder / "llama-server"
    program.write_text(SCRIPT.format(python=sys.executable, folder=str(Path(__file__).parent)))
    program.chmod(0o755)
    return program


def main(arguments: list[str]) -> None:
    """Serve the port of the command line until killed."""
    options = dict(pairwise(arguments))
    if BROKEN in options["--model"]:
        print("loading\nerror: the model is broken\nexiting")
        sys.exit(1)
    template = options.get("--chat-template-file")
    report = {
        "pid": os.getpid(),
        "arguments": arguments,
        "environment": dict(os.environ),
        "template": Path(template).read_text() if template else None,
    }

    def answer(body: dict[str, Any]) -> Answer:
        return Answer(text=json.dumps({**report, "body": body}))

    ModelServer(answer, port=int(options["--port"])).run()


def write_gguf(path: Path, entries: dict[str, Any], *, version: int = 3) -> Path:
    """Write a GGUF file with a header and nothing else: texts, 32-bit integers and lists of texts."""
    data = struct.pack("<4sIQQ", b"GGUF", version, 0, len(entries))
    for name, value in entries.items():
        data += _text(name)
        match value:
            case str():
                data += struct.pack("<I", 8) + _text(value)
            case int():
                data += struct.pack("<II", 4, value)
            case list():
                data += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    path.write_bytes(data)
    return path


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data

"""Another Jupyter client in a process of its own: ``visitor.py CONNECTION_FILE CODE...`` runs the cells and prints a
JSON list of what came of each: ``[status, error name, error message, what it showed]``."""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

#: In the place of a cell: ask the kernel to end.
SHUT_DOWN = "shut down"


def main(connection: str, *codes: str) -> None:
    client: Any = BlockingKernelClient()
    client.load_connection_file(connection)
    client.start_channels()
    client.wait_for_ready(timeout=30)
    print(json.dumps([shut_down(client) if code == SHUT_DOWN else execute(client, code) for code in codes]))
    client.stop_channels()


def shut_down(client: Any) -> list[str]:
    reply = client.shutdown(reply=True, timeout=30)["content"]
    return [reply["status"], reply.get("ename", ""), reply.get("evalue", ""), ""]


def execute(client: Any, code: str) -> list[str]:
    shown: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        content = message["content"]
        shown.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    reply = client.execute_interactive(code, output_hook=hook, timeout=30, allow_stdin=False)["content"]
    return [reply["status"], reply.get("ename", ""), reply.get("evalue", ""), "".join(shown)]


if __name__ == "__main__":
    main(*sys.argv[1:])

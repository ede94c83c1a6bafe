"""A process that has imported everything a kernel needs and forks one whenever the host asks.

A forked kernel spares the time of the imports and shares their memory. Forking is safe here because nothing runs yet:
the template has one thread and no event loop, and each kernel opens its sockets after the fork. Linux only.

The socket to the host, inherited, carries one JSON message a packet. The host asks with ``arguments``, ``cwd`` and
``environment``, and the descriptor for the kernel's output; the answer is ``{"pid": N}`` with the process's pidfd, and
``{"pid": N, "code": N}`` follows when it has ended. The first message of all is ``{}``: ready.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import socket
import sys
from collections.abc import Mapping

#: The environment variable with the number of the socket, and one that makes room for a kernel's environment.
SOCKET, ROOM = "PRIME_KERNEL_TEMPLATE", "PRIME_KERNEL_ROOM"

#: Bytes of the largest request.
PACKET = 1_048_576

#: What a kernel imports late, before its first cell.
_LATER = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "IPython.utils.wildcard", "tornado.platform.asyncio"),
)

#: Seconds without a kernel after which the template ends.
_UNUSED_S = 600.0

#: The fields of ``/proc/self/stat`` that say where the environment is that others see.
_ENV_START, _ENV_END = 49, 50


def serve() -> None:
    """Wait for requests, and return in every process that is forked for one, which then has the arguments, environment,
    folder and descriptors of a kernel that was started directly. The template itself never returns.

    The template ends when the host does, or closes the socket, or does not need it for ten minutes.
    """
    host = socket.socket(fileno=int(os.environ.pop(SOCKET)))
    for name in _LATER:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a kernel would write into the pages it shares
    host.send(b"{}")
    with _Kernels(host) as kernels:
        while True:
            packet, output = kernels.watch_until_asked()
            pid = _fork()
            if pid == 0:
                break
            os.close(output)
            kernels.add(pid)
    host.close()
    _become(json.loads(packet), output)


class _Kernels:
    """The kernels that were forked, whose ends are told to the host."""

    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._pids: dict[int, int] = {}  # by pidfd
        self._selector = selectors.DefaultSelector()
        self._selector.register(host, selectors.EVENT_READ)

    def __enter__(self) -> _Kernels:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._selector.close()
        for watch in self._pids:
            os.close(watch)

    def add(self, pid: int) -> None:
        """Tell the host of a new one."""
        watch = os.pidfd_open(pid)
        self._pids[watch] = pid
        self._selector.register(watch, selectors.EVENT_READ)
        socket.send_fds(self._host, [json.dumps({"pid": pid}).encode()], [watch])

    def watch_until_asked(self) -> tuple[bytes, int]:
        """Return the next request and the descriptor that came with it. Ends the process when there will be none."""
        while True:
            ready = self._selector.select(None if self._pids else _UNUSED_S)
            for watch in [key.fd for key, _ in ready if key.fd in self._pids]:
                self._selector.unregister(watch)
                os.close(watch)
                _, status = os.waitpid(pid := self._pids.pop(watch), 0)
                self._host.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
            if not ready:
                sys.exit()
            if any(key.fileobj is self._host for key, _ in ready):
                packet, descriptors, _, _ = socket.recv_fds(self._host, PACKET, 1)
                if not packet:
                    sys.exit()
                return packet, descriptors[0]


def _fork() -> int:
    """Fork, and return in the parent when the child leads a session of its own: then it can be signalled as a group."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
    os.close(write)
    if pid:
        os.read(read, 1)  # its end, which comes when the child has closed its copy
    os.close(read)
    return pid


def _become(request: Mapping[str, object], output: int) -> None:
    """Take on what ``request`` says and write to ``output``."""
    environment, arguments = request["environment"], request["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    _show(environment)
    os.chdir(str(request["cwd"]))
    sys.argv[1:] = arguments


def _show(environment: Mapping[str, str]) -> None:
    """Put ``environment`` where other processes read it, which otherwise keep seeing the template's: the host finds by
    it what belongs to whom. The C library's own copy is elsewhere by now."""
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    # the name, which may hold blanks, is the second field
    start, end = int(fields[_ENV_START - 2]), int(fields[_ENV_END - 2])
    if len(block) > end - start:
        raise ValueError(f"an environment of {len(block)} bytes is larger than the template's room for it")
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(block.ljust(end - start, b"\0"))

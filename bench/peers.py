"""Other projects' executors as subjects of :mod:`bench.kernel`, those of them that are installed beside it.

    pip install smolagents 'autogen-ext[jupyter-executor]' ipybox 'mcp<1.27'

Their own log, approvals and context are none of this: a cell of ours includes its durable log entries, theirs does not.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from bench.subjects import RunCell

Opened = Callable[[], AbstractAsyncContextManager[RunCell]]


def installed() -> dict[str, Opened]:
    """Return how to open each installed peer, by its name, and say on the way which are absent."""
    found: dict[str, Opened] = {}
    for name, (module, opened) in _PEERS.items():
        if _there(module):
            found[name] = opened
        else:
            print(f"{name}: not installed, left out")
    return found


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@asynccontextmanager
async def _smolagents() -> AsyncIterator[RunCell]:
    from smolagents.local_python_executor import LocalPythonExecutor  # noqa: PLC0415 - an optional peer

    executor = LocalPythonExecutor([])
    executor.send_tools({})

    async def run(code: str) -> str:
        return str(executor(code).logs)

    yield run


@asynccontextmanager
async def _autogen() -> AsyncIterator[RunCell]:
    from autogen_core import CancellationToken  # noqa: PLC0415 - an optional peer
    from autogen_core.code_executor import CodeBlock  # noqa: PLC0415
    from autogen_ext.code_executors.jupyter import JupyterCodeExecutor  # noqa: PLC0415

    async with JupyterCodeExecutor() as executor:

        async def run(code: str) -> str:
            done = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
            assert done.exit_code == 0, done
            return str(done.output)

        yield run


@asynccontextmanager
async def _ipybox() -> AsyncIterator[RunCell]:
    from ipybox import CodeExecutor  # noqa: PLC0415 - an optional peer

    with tempfile.TemporaryDirectory() as images:
        async with CodeExecutor(images_dir=Path(images), approve_tool_calls=False, log_level="ERROR") as executor:

            async def run(code: str) -> str:
                return str((await executor.execute(code)).text or "")

            yield run


_PEERS: dict[str, tuple[str, Opened]] = {
    "smolagents, in process": ("smolagents.local_python_executor", _smolagents),
    "autogen-ext Jupyter": ("autogen_ext.code_executors.jupyter", _autogen),
    "ipybox, no sandbox": ("ipybox", _ipybox),
}

"""How a kernel process is started: its environment, its folder, its interpreter, and what is said when it fails."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from kernels import kernel

from prime import guest
from prime.errors import KernelStartFailed
from prime.repl.pool import Pool
from prime.repl.process import Folder

pytestmark = pytest.mark.anyio


async def test_a_kernel_sees_no_secret_of_the_host_nor_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-secret")
    running = kernel(tmp_path, environment=guest.environment({**os.environ, "PROJECT": "mine"}, ["PROJECT"]))
    try:
        shown = ast.literal_eval(await running.value("import os, sys; str([dict(os.environ), sys.path, os.getcwd()])"))
        variables, path, cwd = ast.literal_eval(shown)
        assert variables["PROJECT"] == "mine"
        assert "canary-secret" not in str(variables)
        assert [name for name in variables if "PRIME" in name or name.startswith("JPY")] == []
        assert not any(entry.endswith("/kernel") for entry in path)
        assert cwd == str(tmp_path)
        assert (await running.cell("!env")).text().count("canary-secret") == 0
        folder = Path(variables["IPYTHONDIR"]).parent
        assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700
    finally:
        await running.repl.close()
    assert not folder.exists()


def test_a_folder_too_deep_for_a_socket_is_made_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 25)
    deep.mkdir()
    folder = Folder(deep)
    try:
        assert len(folder.socket.encode()) < 104
        assert not folder.path.is_relative_to(tmp_path)
    finally:
        folder.remove()
    assert not folder.path.exists()


async def test_a_missing_interpreter_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelStartFailed, match="/no/such/python"):
        await kernel(tmp_path, python="/no/such/python").cell("1")
    with pytest.raises(KernelStartFailed, match="no-such-folder"):
        await kernel(tmp_path / "no-such-folder").cell("1")


async def test_a_failing_start_says_what_was_printed_and_is_not_remembered(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    script = tmp_path / "python"
    script.write_text(
        f'#!/bin/sh\necho x >> "{tries}"\n'
        f'[ -e "{tmp_path}/mended" ] && exec "{sys.executable}" "$@"\n'
        'echo "out of luck"\nexit 3\n'
    )
    script.chmod(0o755)
    running = kernel(tmp_path, python=str(script), pool=Pool())  # a template would be a try of its own
    with pytest.raises(
        KernelStartFailed, match=r"3 tries.*before it was ready, .*exit code 3; its last words:\nout of luck"
    ):
        await running.cell("1")
    assert tries.read_text() == "x\n" * 3
    (tmp_path / "mended").touch()
    try:
        seen = await running.cell("1")
        assert (seen.result, seen.started[0].generation) == ("1", 1)
    finally:
        await running.repl.close()


async def test_an_interpreter_without_ipykernel_gets_the_command(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    with pytest.raises(KernelStartFailed, match=rf"has no ipykernel; install it with: {python} -m pip install"):
        await kernel(tmp_path, python=str(python)).cell("1")


@pytest.fixture(scope="session")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another interpreter that has ipykernel and nothing of ours."""
    folder = tmp_path_factory.mktemp("other")
    python = folder / "env" / "bin" / "python"
    uv = shutil.which("uv")
    commands = (
        [
            [uv, "venv", "-q", str(folder / "env")],
            [uv, "pip", "install", "-q", "--python", str(python), "ipykernel>=7,<8"],
        ]
        if uv
        else [
            [sys.executable, "-m", "venv", str(folder / "env")],
            [str(python), "-m", "pip", "install", "-q", "ipykernel>=7,<8"],
        ]
    )
    for command in commands:
        made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if made.returncode:
            pytest.skip(f"a second environment cannot be made here: {made.stderr.strip()[-200:]}")
    return python


async def test_another_interpreter_needs_nothing_but_ipykernel(tmp_path: Path, other_python: Path) -> None:
    running = kernel(tmp_path, python=str(other_python))
    try:
        seen = await running.cell("import sys; r = await tools.echo({'a': sys.prefix}); r.a")
        assert ast.literal_eval(seen.result) == str(other_python.parent.parent)
        assert seen.started[0].executable == str(other_python)
        assert seen.started[0].interrupts == "frame"
        assert (await running.cell("import pydantic")).error.startswith("ModuleNotFoundError")
        assert (await running.cell("import prime_kernel, sys; 'prime' in sys.modules")).result == "False"
        assert (
            await running.interrupted("print('ready', flush=True)\nawait asyncio.sleep(60)")
        ).status == "interrupted"
    finally:
        await running.repl.close()

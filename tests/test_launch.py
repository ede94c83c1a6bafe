"""The limit of a kernel's memory, in a real kernel with real allocations."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from prime.app import running
from prime.config import Config
from prime.guest import environment
from prime.providers.scripted import ScriptedProvider

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="other systems do not enforce it"),
]

LIMIT = 512 * 1024 * 1024


async def test_a_cell_over_the_memory_limit_fails_and_the_kernel_goes_on(home: Path, tmp_path: Path) -> None:
    config = Config(home=home, guest_environment=environment(os.environ), memory_limit_bytes=LIMIT)
    async with running(config, tmp_path, ScriptedProvider([])) as agent:
        assert (await agent.cell(f"kept = bytes({LIMIT} // 4)")).status == "ok"
        over = await agent.cell(f"bytes({LIMIT})")
        assert (over.status, over.error and over.error.name) == ("error", "MemoryError")
        piecemeal = await agent.cell("[bytes(1 << 20) for _ in range(1024)]")
        assert (piecemeal.status, piecemeal.error and piecemeal.error.name) == ("error", "MemoryError")
        kept = f"len(kept) == {LIMIT} // 4"
        after = await agent.cell(f"import os\nassert {kept} and 'PRIME_KERNEL_MEMORY' not in os.environ")
        assert after.status == "ok"


async def test_children_have_the_limit_too_and_may_reserve_addresses(home: Path, tmp_path: Path) -> None:
    config = Config(home=home, guest_environment=environment(os.environ), memory_limit_bytes=LIMIT)
    async with running(config, tmp_path, ScriptedProvider([])) as agent:
        child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}], check=True)"
        reserving = "import mmap; mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)"
        assert (await agent.cell(child.format(reserving))).status == "ok"
        assert (await agent.cell(child.format(f"bytes({LIMIT})"))).status == "error"


async def test_without_the_setting_there_is_no_limit(home: Path, tmp_path: Path) -> None:
    config = Config(home=home, guest_environment=environment(os.environ))
    async with running(config, tmp_path, ScriptedProvider([])) as agent:
        ours = resource.getrlimit(resource.RLIMIT_DATA)
        assert (
            await agent.cell(f"import resource\nassert resource.getrlimit(resource.RLIMIT_DATA) == {ours}")
        ).status == "ok"

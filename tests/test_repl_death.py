"""A kernel process that ends by itself, or gives no sign of life any more, and what is said of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kernels import Kernel, kernel, needs_numbers_of_the_host

from prime.app import running
from prime.config import Config
from prime.guest import environment
from prime.providers.scripted import ScriptedProvider
from prime.repl.death import cause, last_words, oom_kills
from prime.repl.signals import Output, Signal

pytestmark = pytest.mark.anyio

SEGFAULT = "import ctypes\ndef crash(): ctypes.string_at(0)\n\ncrash()"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path, patience_s=0.6)
    yield running
    await running.repl.close()


async def test_a_crash_in_native_code_is_told_with_the_line_of_the_cell(own: Kernel) -> None:
    await own.cell("import os; os.system('echo harmless >&2')")
    seen = await own.cell(SEGFAULT)
    assert (seen.status, seen.error) == ("died", f"KernelDied: {seen.lost[0].reason}")
    how, fatal, _, *frames = seen.lost[0].reason.splitlines()
    assert how == "the kernel process was killed by SIGSEGV; its last words:"
    assert fatal == "Fatal Python error: Segmentation fault"
    assert frames[0].endswith(" in string_at")
    assert frames[1:] == ['  File "<cell 2>", line 2 in crash', '  File "<cell 2>", line 4 in <module>']


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os\nos.abort()", r'SIGABRT(.|\n)*Fatal Python error: Aborted(.|\n)*"<cell 1>", line 2 in <module>$'),
        ("import os\nos._exit(3)", "^the kernel process ended by itself with exit code 3$"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "^the kernel process was killed by SIGKILL$"),
    ],
)
async def test_an_end_is_told_as_it_was(own: Kernel, code: str, words: str) -> None:
    seen = await own.cell(code)
    assert seen.status == "died"
    assert re.search(words, seen.lost[0].reason), seen.lost[0].reason


async def test_the_model_reads_why_the_kernel_died(home: Path, tmp_path: Path) -> None:
    config = Config(home=home, guest_environment=environment(os.environ))
    async with running(config, tmp_path, ScriptedProvider([])) as agent:
        ended = await agent.cell(SEGFAULT)
        text = ended.shown[0].text
        assert text.startswith("[the kernel died after ")
        assert "Segmentation fault" in text
        assert 'File "<cell 1>", line 4 in <module>]' in text


async def test_the_crash_of_a_forked_child_is_the_cells_own_output(own: Kernel) -> None:
    seen = await own.cell(
        f"import os\nif not os.fork():\n    {SEGFAULT.splitlines()[0]}; ctypes.string_at(0)\nos.wait()"
    )
    assert "Segmentation fault" in seen.text("stderr")
    assert (await own.cell("os._exit(3)")).lost[0].reason == "the kernel process ended by itself with exit code 3"


async def test_a_stopped_kernel_is_noticed_killed_and_replaced(own: Kernel) -> None:
    needs_numbers_of_the_host()
    pid = int(await own.value("import os; os.getpid()"))

    def on(said: Signal) -> None:
        if isinstance(said, Output) and "ready" in said.text:
            os.kill(pid, signal.SIGSTOP)

    seen = await own.cell("print('ready', flush=True)\nimport time; time.sleep(60)", on=on)
    assert seen.status == "died"
    assert "gave no sign of life for 0.6 s" in seen.lost[0].reason
    assert await own.value("1") == "1"


async def test_a_cell_for_a_kernel_that_was_stopped_before_ends_too(own: Kernel) -> None:
    needs_numbers_of_the_host()
    os.kill(int(await own.value("import os; os.getpid()")), signal.SIGSTOP)
    seen = await own.cell("1")
    assert (seen.status, "no sign of life" in seen.lost[0].reason) == ("died", True)


async def test_a_cell_that_holds_the_interpreter_is_not_taken_for_stuck(own: Kernel) -> None:
    # PyDLL, unlike CDLL, keeps the interpreter's lock: no Python thread of the kernel runs for three times the patience
    seen = await own.cell("import ctypes\nctypes.PyDLL(None).usleep(1_800_000)\n'through'")
    assert (seen.status, seen.lost) == ("ok", [])
    assert seen.ended.duration_s >= 1.8


def test_want_of_memory_is_claimed_with_evidence_only() -> None:
    assert "memory" not in cause(-signal.SIGKILL, "")
    assert "probably out of memory" in cause(-signal.SIGKILL, "", out_of_memory=True)
    assert "memory" not in cause(-signal.SIGSEGV, "", out_of_memory=True)
    assert oom_kills() >= 0


def test_an_unknown_end_is_said_to_be_unknown() -> None:
    assert cause(None, "") == "the kernel process is gone; its exit code is not known"
    assert cause(-200, "") == "the kernel process was killed by signal 200"


def test_last_words_are_bounded_and_clean() -> None:
    assert last_words("") == ""
    assert last_words("\x1b[31mred\x1b[0m\r\n\0bell\a\n\n") == "red\nbell"
    assert len(last_words("x" * 100_000)) == 2_000
    assert last_words("\n".join(map(str, range(100)))).splitlines() == [str(n) for n in range(80, 100)]


def test_of_a_crash_the_innermost_frames_and_the_cells_line_are_kept() -> None:
    frames = [f'  File "lib.py", line {n} in f' for n in range(100)]
    cell, ours = '  File "<cell 7>", line 3 in <module>', '  File "shell.py", line 1 in run'
    dump = ["before", "Fatal Python error: Aborted", "", "Stack (most recent call first):", *frames, cell, ours]
    kept = last_words("\n".join([*dump, "Extension modules: zmq (total: 1)"])).splitlines()
    assert kept[:3] == ["Fatal Python error: Aborted", "Stack (most recent call first):", frames[0]]
    assert (kept[-1], len(kept)) == (cell, 20)

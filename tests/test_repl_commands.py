"""Programs that cells start, and every magic that would start one, ask somebody or need a screen; in a real kernel."""

from __future__ import annotations

import ast
import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from kernels import Kernel, kernel, needs_numbers_of_the_host

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Kernel]:
    folder = tmp_path_factory.mktemp("commands")
    (folder / "file.py").write_text("y = 5\nprint(y)\n")
    running = kernel(folder)
    yield running
    await running.repl.close()


@pytest.fixture
async def own(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path)
    yield running
    await running.repl.close()


#: A cell -> what it says: its completion, its output or its error.
WORKS = {
    "out = !echo a; echo b >&2\nout": "['a', 'b']",
    "!!echo $((1 + 1))": "['2']",
    "%sx echo a": "['a']",
    "%system echo a": "['a']",
    "%%sx\necho a": "['a']",
    "!exit 3\n_exit_code": "3",
    "out = !exit 4\n_exit_code": "4",
    "%sc text=echo a\nprint(text)": "a\n\n",
    "%alias say echo %s\n%say hello": "hello\n",
    "%%script cat\nhello": "hello\n",
    "%%bash\necho $BASH_VERSION | cut -c1": "5\n",
    "%%bash -s one two\necho $2": "two\n",
    "%%bash --no-raise-error\nexit 3": "",
    "%%python\nprint(1 + 1)": "2\n",
    "%%perl\nprint 'x'": "x",
    "%cat file.py": "y = 5\nprint(y)\n",
    "%less file.py": "y = 5\nprint(y)\n\n",
    "%run file.py": "5\n",
    "%set_env COLOUR blue\n!echo $COLOUR": "env: COLOUR=blue\nblue\n",
    "%env COLOUR": "'blue'",
    "%time 1": "1",
    "%autoawait": "cells may await, with asyncio\n",
    "%%capture kept\nprint(7)": "",
    "kept.stdout": "'7\\n'",
    "%matplotlib inline": "",
    "%load_ext autoreload\n%autoreload 2": "",
    "%rehashx": "",
    "x = 1\n%xdel x\n'x' in dir()": "False",
    "%reset -f": "",
    "await tools.echo(1)": "1",
}


@pytest.mark.parametrize(("code", "words"), WORKS.items(), ids=WORKS)
async def test_what_works_as_in_ipython(shared: Kernel, code: str, words: str) -> None:
    seen = await shared.cell(code)
    assert seen.status == "ok", seen.ended
    shown = [output.text for output in seen.outputs if not output.text.startswith("CPU times")]
    assert "".join(shown) == words


#: A cell -> a part of the one line that says what to do instead.
TEACHES = {
    "%edit": "%%writefile",
    "%ed file.py": "%%writefile",
    "%debug": "debugger",
    "%%debug\n1": "debugger",
    "%pdb on": "debugger",
    "%run -d file.py": "debugger",
    "breakpoint()": "debugger",
    "import pdb; pdb.set_trace()": "debugger",
    "%tb": "traceback is in the result",
    "%gui qt": "no screen",
    "%matplotlib qt": "no screen",
    "%qtconsole": "no screen",
    "%connect_info": "key",
    "%pastebin 1": "%save",
    "%colors Linux": "plain text",
    "%autoawait off": "may always await",
    "%load file.py": "%run PATH",
    "%recall 1": "%run PATH",
    "%reset": "add -f",
    "%reset_selective x": "add -f",
    "%%script\n1": "needs a program",
    "%%script nothing-like-it\n1": "no program 'nothing-like-it'",
    "%%bash\nexit 3": "returned non-zero exit status 3",
    "%run missing.py": "missing.py",
    "%nothing_like_it": "not found",
    "input()": "nobody can answer",
}


@pytest.mark.parametrize(("code", "words"), TEACHES.items(), ids=TEACHES)
async def test_what_cannot_work_says_what_to_do(shared: Kernel, code: str, words: str) -> None:
    seen = await shared.cell(code)
    assert seen.status == "error"
    assert words in seen.error
    assert "\n" not in seen.error
    assert seen.outputs == []


async def test_cd_says_that_it_moves_the_kernel_alone(shared: Kernel, tmp_path: Path) -> None:
    start = ast.literal_eval(await shared.value("import os; os.getcwd()"))
    assert f"host calls take paths from {start}" in (await shared.cell(f"%cd {tmp_path}")).text()
    assert (await shared.cell("%cd -")).text() == f"{start}\n"
    assert "No such file" in (await shared.cell("%cd /nowhere/at/all")).text()
    assert await shared.value("os.getcwd()") == repr(start)


async def test_scripts_give_their_output_to_names(shared: Kernel) -> None:
    seen = await shared.cell("%%bash --out said --err warned\necho é; echo b >&2; exit 2")
    assert (seen.status, seen.outputs) == ("error", [])
    assert await shared.value("said, warned, _exit_code") == "('é\\n', 'b\\n', 2)"
    seen = await shared.cell("%%bash --bg --out pipe --proc process\necho a; sleep 600")
    assert seen.status == "ok"
    assert await shared.value("pipe.readline()") == "b'a\\n'"
    await shared.cell("%killbgscripts")
    assert await shared.value("process.returncode") == "-2"


async def test_the_environment_asks_no_program_for_colours(shared: Kernel) -> None:
    code = "import os; [os.environ.get(name) for name in ('TERM', 'NO_COLOR', 'FORCE_COLOR', 'CLICOLOR_FORCE')]"
    assert await shared.value(code) == "['dumb', '1', None, None]"
    assert "\x1b" not in (await shared.cell("%clear\n!ls --color=auto; git --version")).text()


ASKS = {
    "read": ("!read answer; echo [$answer]", "[]"),
    "script": ("%%bash\ncat\nread answer\necho [$answer]", "[]"),
    "python": ("!python3 -c 'input()'", "EOFError"),
    "commit": ("!git init -q . && git -c user.name=n -c user.email=e commit --allow-empty", "empty commit message"),
    "push": ("!git push https://127.0.0.1:1/x.git main", "error"),
    "pager": ("!less file.py", "print(y)"),
    "top": ("!top", "tty"),
}


@pytest.mark.parametrize(("code", "words"), ASKS.values(), ids=ASKS)
async def test_a_program_that_asks_does_not_wait(shared: Kernel, code: str, words: str) -> None:
    seen = await shared.cell(code, timeout_s=30)
    if shutil.which(code.split(maxsplit=1)[0].strip("!")) is None and "not found" in seen.text("stderr"):
        pytest.skip("not installed here")
    assert seen.status == "ok"
    assert words in seen.text() + seen.text("stderr")


async def test_pip_is_that_of_the_kernel(shared: Kernel) -> None:
    seen = await shared.cell("%pip show ipykernel\n_exit_code")
    if seen.status == "error":
        assert "ensurepip" in seen.error
        return
    assert "Name: ipykernel" in seen.text()
    assert seen.result == "0"


async def test_text_cut_anywhere_is_decoded(shared: Kernel) -> None:
    seen = await shared.cell("%%python\nimport os, time\nfor byte in 'é€'.encode():\n    os.write(1, bytes([byte]))")
    assert seen.text() == "é€"


async def test_calls_are_answered_while_a_script_runs(shared: Kernel) -> None:
    seen = await shared.cell(
        "import threading\nfound = []\ncall = tools.echo(1)\n"
        "def ask():\n    found.append(tools.echo(2).result())\n    open('go', 'w').close()\n"
        "thread = threading.Thread(target=ask); thread.start()\n"
        "get_ipython().run_cell_magic('bash', '', 'until [ -e go ]; do :; done')\n"
        "thread.join()\nfound, call.result()",
        timeout_s=30,
    )
    assert seen.status == "ok", seen.ended
    assert seen.result == "([2], 1)"


_LEFT = {
    "&": "sleep 600 & echo $!",
    "nohup": "nohup sleep 600 2>&1 & echo $!",
    "subshell": "(sleep 600 & echo $!)",
    "setsid": "setsid sleep 600 & echo $!",
    "daemon": "python3 -c 'import os, time\nif pid := os.fork():\n    print(pid, flush=True)\n    os._exit(0)\n"
    "os.setsid(); time.sleep(600)'",
}


@pytest.mark.parametrize("start", ["!{}", "%%bash\n{}", "_ = !{}\nprint(*_)"])
async def test_what_is_left_in_the_background_holds_nobody_and_ends_with_the_kernel(own: Kernel, start: str) -> None:
    needs_numbers_of_the_host()
    pids = []
    for command in _LEFT.values():
        if "\n" in command and not start.startswith("%%"):
            continue
        seen = await own.cell(start.format(command), timeout_s=30)
        assert seen.status == "ok"
        pids.append(int(seen.text().split()[-1]))
    left = [psutil.Process(pid) for pid in pids]
    assert all(process.is_running() for process in left)
    await own.repl.close()
    _gone, alive = await asyncio.to_thread(psutil.wait_procs, left, 10)
    assert alive == []


async def test_what_the_background_prints_is_late_output_of_its_cell(shared: Kernel) -> None:
    await shared.cell("!(until [ -e speak ]; do sleep 0.01; done; echo late; touch spoken) & echo now")
    seen = await shared.cell(
        "import os, time\nopen('speak', 'w').close()\nwhile not os.path.exists('spoken'): time.sleep(0.01)\n"
        "print('mine')\ntime.sleep(0.2)"
    )
    assert [(each.text, each.late) for each in seen.outputs if each.late] == [("late\n", True)]
    assert seen.text() == "mine\n"


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


_STUBBORN = "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nprint('ready', flush=True)\n"


@pytest.mark.parametrize(
    "code",
    [
        "%%bash\ntrap '' INT TERM\n(trap '' INT TERM; sleep 600) &\necho $! $$ ready\nsleep 600; sleep 600",
        "%%python\nimport os\nprint(os.getpid())\n" + _STUBBORN + "time.sleep(600)",
        "get_ipython().system('echo $$ ready; yes > /dev/null')",
        "%%bash\nsleep 600 &\necho $! $$ ready\nwait",
    ],
)
async def test_an_interrupt_ends_the_whole_group(shared: Kernel, code: str) -> None:
    await shared.cell("kept = 1")
    seen = await shared.interrupted(code)
    assert (seen.status, seen.lost) == ("interrupted", [])
    pids = [int(word) for word in seen.text().split() if word.isdigit()]
    assert pids
    # they were killed before the cell ended, which takes the system a moment
    _gone, alive = await asyncio.to_thread(psutil.wait_procs, list(filter(None, map(_process, pids))), 10)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    assert await shared.value("kept") == "1"


async def test_a_flood_is_cut(tmp_path: Path) -> None:
    small = kernel(tmp_path, output_limit=100_000)
    try:
        seen = await small.cell("!head -c 100000000 /dev/zero | tr '\\0' x")
        assert seen.status == "ok"
        assert 90_000 < len(seen.text()) <= 100_000
        assert seen.ended.dropped >= 99_900_000
    finally:
        await small.repl.close()

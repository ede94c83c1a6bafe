"""Whole sessions through the public names, with a real kernel and a scripted model."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from watch import shown

import prime
from prime import events as ev
from prime.config import KEY_VARIABLES
from prime.errors import SessionBusy
from prime.faces import Agent
from prime.log import read
from prime.messages import ImagePart, Request, text_of
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions
from prime.verify import verify

pytestmark = pytest.mark.anyio

#: A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Customer(BaseModel):
    """A customer."""

    id: int
    name: str


@prime.tool(parallel=True, effects=False)
async def lookup(id: int) -> Customer:
    """One customer by id."""
    await asyncio.sleep(0.05)
    return Customer(id=id, name=f"customer {id}")


@dataclass
class Shared:
    """One agent with one kernel for the tests of this module; ``script`` is what its model says next."""

    agent: Agent
    script: list[dict[str, Any]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    async def run(self, *cells: str) -> tuple[prime.Answer, list[str]]:
        """Have the model run these cells, one a step, and return the answer and what was shown of each."""
        self.script += [*({"code": code} for code in cells), {"text": "done"}]
        answer = await self.agent.ask("go")
        results = [text_of(message.parts) for message in self.requests[-1].messages if message.role == "tool"]
        return answer, results[-len(cells) :]


@pytest.fixture(scope="module")
async def shared(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    script: list[dict[str, Any]] = []
    provider = ScriptedProvider(lambda request: script.pop(0), images=True)
    folder = tmp_path_factory.mktemp("work")
    async with prime.Agent(provider, home=shared_home, cwd=folder, tools=[lookup]) as agent:
        yield Shared(agent, script, provider.requests)


def entries(home: Path, session: str, *kinds: str) -> list[ev.Entry]:
    with Sessions(home).read(session) as store:
        return list(read(store, types=kinds or None))


async def test_names_functions_and_imports_live_on_between_cells_and_turns(shared: Shared) -> None:
    first, _ = await shared.run("import math\nnumbers = [1, 2, 3]", "def double(n):\n    return 2 * n")
    second, results = await shared.run("[double(n) for n in numbers]", "numbers.append(4); math.prod(numbers)")
    assert [result.splitlines()[0] for result in results] == ["[2, 4, 6]", "24"]
    assert (second.turn, second.reason) == (first.turn + 1, "completed")


async def test_of_two_hundred_calls_only_what_is_printed_enters_the_conversation(
    shared: Shared, shared_home: Path
) -> None:
    before = len(entries(shared_home, shared.agent.session, "dispatch_ended"))
    code = (
        "for n in range(100):\n"
        "    await tools.write(path=f'many/{n}.txt', content=f'secret number {n}\\n')\n"
        "texts = await asyncio.gather(*(tools.read(path=f'many/{n}.txt') for n in range(100)))\n"
        "print(sum(len(each.text) for each in texts))"
    )
    _, (result,) = await shared.run(code)
    assert result.splitlines()[0] == str(sum(len(f"secret number {n}\n") for n in range(100)))
    assert "secret" not in result
    ends = [entry.event for entry in entries(shared_home, shared.agent.session, "dispatch_ended")][before:]
    assert len(ends) == 200
    assert all(event.error is None for event in ends)
    assert "secret number 42" in ends[142].value["text"]
    (ended,) = entries(shared_home, shared.agent.session, "cell_ended")[-1:]
    assert ended.event.calls == 200


async def test_a_tool_of_the_user_is_typed_and_overlaps(shared: Shared) -> None:
    code = (
        "import time; start = time.perf_counter()\n"
        "found = await asyncio.gather(*(tools.lookup(n) for n in range(8)))\n"
        "print(found[3].name, time.perf_counter() - start < 8 * 0.05)\n"
        "try:\n"
        "    await tools.lookup('x')\n"
        "except ToolCallError as error:\n"
        "    print(error.tool, error.code)\n"
        "tools.lookup"
    )
    _, (result,) = await shared.run(code)
    assert result.splitlines()[:2] == ["customer 3 True", "tools.lookup bad_arguments"]
    assert "lookup(id: int)" in shared.requests[-1].header.system


async def test_calls_work_from_functions_threads_and_tasks(shared: Shared) -> None:
    code = (
        "import threading\n"
        "def plain(n): return tools.lookup(n).result().name\n"
        "names = []\n"
        "thread = threading.Thread(target=lambda: names.append(plain(1))); thread.start(); thread.join()\n"
        "async def later(): names.append((await tools.lookup(2)).name)\n"
        "await asyncio.create_task(later())\n"
        "names.append(plain(3)); names"
    )
    _, (result,) = await shared.run(code)
    assert result.splitlines()[0] == "['customer 1', 'customer 2', 'customer 3']"


async def test_a_cell_that_does_not_parse_makes_no_call(shared: Shared, shared_home: Path) -> None:
    before = len(entries(shared_home, shared.agent.session, "dispatch_started"))
    _, (refused, after) = await shared.run(
        "await tools.write(path='unparsed.txt', content='x')\nunparsed = 1\nunparsed +",
        "import os; os.path.exists('unparsed.txt'), 'unparsed' in dir()",
    )
    assert "line 3" in refused
    assert after.startswith("(False, False)")
    assert len(entries(shared_home, shared.agent.session, "dispatch_started")) == before


async def test_a_saved_function_calls_in_the_cell_that_uses_it(shared: Shared, shared_home: Path) -> None:
    _, (_, used) = await shared.run("def name_of(n): return tools.lookup(n).result().name", "name_of(9)")
    assert used.startswith("'customer 9'")
    (started,) = entries(shared_home, shared.agent.session, "dispatch_started")[-1:]
    (cell,) = entries(shared_home, shared.agent.session, "cell_started")[-1:]
    assert started.event.cell == cell.event.cell


async def test_work_left_behind_can_neither_call_nor_print_in_a_later_cell(shared: Shared, shared_home: Path) -> None:
    before = len(entries(shared_home, shared.agent.session, "dispatch_started"))
    left = (
        "left = []\n"
        "async def behind():\n"
        "    await asyncio.sleep(0.2)\n"
        "    print('from behind')\n"
        "    try: await tools.write(path='behind.txt', content='x')\n"
        "    except Exception as error: left.append(type(error).__name__)\n"
        "task = asyncio.create_task(behind()); None"
    )
    _, (_, later) = await shared.run(left, "await asyncio.sleep(0.4); print(len(left))")
    assert later.splitlines()[0] == "1"
    assert "from behind" not in later
    assert len(entries(shared_home, shared.agent.session, "dispatch_started")) == before
    texts = {entry.event.text: entry.event.late for entry in entries(shared_home, shared.agent.session, "cell_output")}
    assert texts["from behind\n"] is True


async def test_a_cell_ends_after_the_calls_that_nobody_awaited(shared: Shared, shared_home: Path) -> None:
    _, (result,) = await shared.run("tools.lookup(5); tools.read(path='nowhere.txt'); None")
    assert "[not awaited] tools.read: not_found" in result
    kinds = [entry.event.type for entry in entries(shared_home, shared.agent.session)]
    end = max(place for place, kind in enumerate(kinds) if kind == "cell_ended")
    assert kinds[:end].count("dispatch_started") == kinds[:end].count("dispatch_ended")


async def test_completions_are_shown_as_they_are(shared: Shared) -> None:
    _, results = await shared.run(
        "0", "False", "''", "None", "_", "class Odd:\n    def __repr__(self): raise ValueError('secret')\nOdd()"
    )
    assert [result.splitlines()[0] for result in results[:3]] == ["0", "False", "''"]
    assert results[3].startswith("[context")
    assert results[4].splitlines()[0] == "''"
    assert "secret" not in results[5]


async def test_a_tools_own_form_is_shown_only_for_its_untouched_value(shared: Shared) -> None:
    await shared.run("await tools.write(path='a.txt', content='one\\ntwo\\n'); None")
    _, (untouched, kept, later, touched, other) = await shared.run(
        "await tools.read(path='a.txt')",
        "r = await tools.read(path='a.txt'); r",
        "r",
        "dict(await tools.read(path='a.txt'))",
        "print(r.text)",
    )
    assert untouched.splitlines()[:-1] == kept.splitlines()[:-1] == later.splitlines()[:-1]
    assert "{" not in untouched
    assert "two" in untouched
    assert "'total_lines': 2" in touched
    assert other.startswith("one\ntwo")


async def test_a_picture_goes_from_the_cell_into_the_request(shared: Shared) -> None:
    code = f"import base64\nfrom IPython.display import Image\nImage(data=base64.b64decode('{PIXEL}'))"
    await shared.run(code)
    images = [part for part in shared.requests[-1].messages[-1].parts if isinstance(part, ImagePart)]
    assert images == [ImagePart(media_type="image/png", data=PIXEL)]
    keep = f"import base64, pathlib\npathlib.Path('dot.png').write_bytes(base64.b64decode('{PIXEL}'))"
    await shared.run(keep, "await tools.read(path='dot.png')")
    images = [part for part in shared.requests[-1].messages[-1].parts if isinstance(part, ImagePart)]
    assert images == [ImagePart(media_type="image/png", data=PIXEL)]


async def test_text_that_is_not_unicode_does_not_stop_the_session(shared: Shared) -> None:
    answer, (printed, raised, called, _) = await shared.run(
        "print('a\\ud800b')",
        "raise ValueError('\\udcff')",
        "await tools.read(path='\\udcff')",
        "name_ = '\\ud800'; name_",
    )
    assert answer.reason == "completed"
    assert printed.startswith("a")
    assert "ValueError" in raised
    assert "Error" in called


async def test_a_cut_output_names_the_call_that_returns_the_whole(shared: Shared) -> None:
    _, (cut,) = await shared.run("print('\\n'.join(f'line {n} é' for n in range(5000)))")
    assert len(cut.encode()) <= 12_000
    call = cut.partition("`await ")[2].partition("`")[0]
    _, (whole,) = await shared.run(
        f"whole = (await {call}).text; print(whole == '\\n'.join(f'line {{n}} é' for n in range(5000)) + '\\n')"
    )
    assert whole.startswith("True")


async def test_what_is_advertised_exists_with_that_signature(shared: Shared) -> None:
    listed = (
        "import inspect, json\n"
        "spaces = dict(tools=tools, history=history, notes=notes, context=context)\n"
        "found = {f'{space}.{name}': str(inspect.signature(getattr(held, name)))\n"
        "    for space, held in spaces.items() for name in dir(held) if not name.startswith('_')}\n"
        "print(json.dumps(found))"
    )
    _, (result,) = await shared.run(listed)
    found = json.loads(result.splitlines()[0])
    advertised = [line for line in shared.requests[-1].header.system.splitlines() if "(" in line and ") -> " in line]
    bindings = {line.partition("(")[0]: line for line in advertised if line.partition("(")[0] in found}
    assert bindings.keys() == found.keys()
    assert len(found) > 10
    for target, line in bindings.items():
        advertised_names = inspect.signature(_stub(line.partition("(")[2].rpartition(") -> ")[0])).parameters
        existing = inspect.signature(_stub(found[target].strip().removeprefix("(").rpartition(")")[0])).parameters
        assert list(advertised_names) == list(existing), target
        for name, parameter in advertised_names.items():
            assert (parameter.kind, parameter.default) == (existing[name].kind, existing[name].default), target


def _stub(parameters: str) -> Callable[..., Any]:
    """Return a function with these parameters, the annotations unread."""
    names: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef stub({parameters}): pass", names)
    stub: Callable[..., Any] = names["stub"]
    return stub


async def test_an_interrupt_keeps_the_names_and_the_session(shared: Shared) -> None:
    await shared.run("kept = 41")
    shared.script += [{"code": "import time; kept += 1; print('asleep', flush=True); time.sleep(60)"}]
    stream = shared.agent.stream("sleep")
    async for item in stream:
        if isinstance(item, ev.Entry) and isinstance(item.event, ev.CellOutput):
            shared.agent.interrupt()
        if isinstance(item, ev.Entry) and isinstance(item.event, ev.TurnEnded):
            assert item.event.reason == "cancelled"
    _, (result,) = await shared.run("kept")
    assert result.startswith("42")


async def test_a_dead_kernel_is_told_once_by_the_next_cell_that_runs(shared: Shared) -> None:
    _, (_, died, refused, told, after) = await shared.run(
        "precious = 1", "import os; os.kill(os.getpid(), 9)", "print(1", "print('back')", "print('again')"
    )
    assert "died" in died
    assert "restarted" not in refused
    assert "nothing ran" in refused
    assert "restarted" in told
    assert "precious" in told
    assert "restarted" not in after


async def test_the_host_keeps_its_secrets(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {name: f"canary-{name}" for name in (*KEY_VARIABLES, "AWS_SECRET_ACCESS_KEY", "SOME_TOKEN")}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    provider = ScriptedProvider(
        [
            {"code": "import os; print(sorted(os.environ)); print('canary' in str(dict(os.environ)))"},
            {"code": "r = await tools.bash(command='env'); print('PATH=' in r.stdout, 'canary' in r.stdout)"},
            {"code": "import subprocess; print('canary' in subprocess.check_output('env', text=True))"},
            {"text": "done"},
        ]
    )
    async with prime.Agent(provider, home=home, cwd=tmp_path) as agent:
        assert (await agent.ask("go")).reason == "completed"
        folder = Sessions(home).folder(agent.session)
    shown_texts = [shown(entry.event) for entry in entries(home, agent.session, "cell_ended")]
    assert [text.splitlines()[-2] for text in shown_texts] == ["False", "True False", "False"]
    for name in secrets:
        assert name not in shown_texts[0]
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"canary-" not in stored


async def test_an_interrupt_while_the_real_kernel_starts_runs_nothing(home: Path, tmp_path: Path) -> None:
    provider = ScriptedProvider([{"code": "open('ran', 'w')"}, {"code": "print('now')"}, {"text": "done"}])
    async with prime.Agent(provider, home=home, cwd=tmp_path) as agent:
        async for item in agent.stream("go"):
            if isinstance(item, ev.Entry) and isinstance(item.event, ev.CellStarted):
                agent.interrupt()
        assert not (tmp_path / "ran").exists()
        assert (await agent.ask("go")).text == "done"
    assert [entry.event.reason for entry in entries(home, agent.session, "turn_ended")] == ["cancelled", "completed"]


async def test_a_session_goes_on_after_it_was_closed_and_from_a_fork(home: Path, tmp_path: Path) -> None:
    first = ScriptedProvider([{"code": "secret = 7"}, {"text": "bound"}])
    async with prime.Agent(first, home=home, cwd=tmp_path) as agent:
        await agent.ask("bind it")
    sessions = Sessions(home)
    fork = sessions.fork(agent.session)
    for session in (agent.session, fork):
        provider = ScriptedProvider([{"code": "secret"}, {"text": "there"}])
        async with prime.Agent(provider, home=home, session=session) as again:
            answer = await again.ask("is it there?")
        assert (answer.turn, answer.text) == (2, "there")
        result = text_of(provider.requests[-1].messages[-1].parts)
        assert "all names are as they were, restored from a snapshot: secret]\n7\n" in result
        assert [text_of(message.parts) for message in provider.requests[0].messages if message.role == "user"] == [
            "bind it",
            "is it there?",
        ]
        with sessions.read(session) as store:
            assert verify(store).requests == 4


def test_the_blocking_face_does_the_same(home: Path, tmp_path: Path) -> None:
    provider = ScriptedProvider(
        [{"code": "print(6 * 7)"}, {"text": "42"}, {"text": "again"}, {"text": "x", "hang": True}, {"text": "then"}]
    )
    with prime.Agent.sync(provider, home=home, cwd=tmp_path) as agent:
        answer = agent.ask("6 x 7?")
        assert (answer.text, answer.session) == ("42", agent.session)
        items = list(agent.stream("again?"))
        assert isinstance(items[-1].event, ev.TurnEnded)
        assert shown(agent.cell("1 + 1")) == "2"
        for _ in agent.stream("and now?"):
            break  # leaving ends the turn
        assert agent.ask("and then?").text == "then"
        with pytest.raises(AttributeError):
            agent.nothing()
    assert entries(home, agent.session, "turn_ended")[-2].event.reason == "cancelled"


async def test_two_processes_cannot_hold_one_session_and_death_lets_go(home: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from prime.sessions import Sessions\n"
        f"with Sessions(Path({str(home)!r})).create(Path({str(tmp_path)!r})) as log:\n"
        "    print(log.session, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
    try:
        assert other.stdout is not None
        session = (await other.stdout.readline()).decode().strip()
        with pytest.raises(SessionBusy, match=str(other.pid)):
            async with prime.Agent(ScriptedProvider([]), home=home, session=session):
                pass
        other.kill()
        await other.wait()
        async with prime.Agent(ScriptedProvider([{"text": "mine"}]), home=home, session=session) as agent:
            assert (await agent.ask("whose?")).text == "mine"
    finally:
        if other.returncode is None:
            other.kill()
        await other.communicate()

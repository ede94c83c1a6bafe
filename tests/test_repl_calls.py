"""Host calls from cells, and the leases they are made under, in a real kernel."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kernels import Kernel, kernel

from prime.repl.signals import CallCancelled, HostCall, Output

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path_factory.mktemp("calls"))
    yield running
    await running.repl.close()


@pytest.mark.parametrize(
    "code",
    [
        "await tools.echo(5)",
        "tools.echo(value=5)",
        "tools.echo(5).result()",
        "x = tools.echo(5)\nawait x\nawait x",
        "(await asyncio.gather(tools.echo(4), tools.echo(5)))[1]",
        "await asyncio.wait_for(tools.echo(5), 60)",
        "[await c for c in asyncio.as_completed([tools.echo(5)])][0]",
        "await asyncio.create_task(asyncio.wait_for(tools.echo(5), None))",
        "await asyncio.to_thread(lambda: tools.echo(5).result())",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "pool.submit(lambda: tools.echo(5).result()).result()",
        "import threading\nfound = []\n"
        "thread = threading.Thread(target=lambda: found.append(tools.echo(5).result()))\n"
        "thread.start(); thread.join(); found[0]",
        "def plain(): return tools.echo(5).result()\nplain()",
        "call = tools.echo(5)\ncall.result(timeout=60), call.done()\ncall.result()",
    ],
)
async def test_every_way_to_ask_for_a_value(shared: Kernel, code: str) -> None:
    assert await shared.value(code) == "5"


async def test_a_pool_of_an_earlier_cell_works_for_the_running_one(shared: Kernel) -> None:
    await shared.cell(
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(int).result()"
    )
    assert await shared.value("pool.submit(lambda: tools.echo(5).result()).result()") == "5"


async def test_calls_leave_in_order_with_their_arguments(shared: Kernel) -> None:
    seen = await shared.cell("_c = [tools.echo(n) for n in range(50)]\ntools.read('a', limit=3)")
    assert [call.arguments for call in seen.calls] == [*({"value": n} for n in range(50)), {"path": "a", "limit": 3}]
    assert [call.call for call in seen.calls] == sorted(call.call for call in seen.calls)


async def test_objects_come_as_records(shared: Kernel) -> None:
    await shared.cell("import json, pickle, copy\nr = await tools.echo({'a': {'b': [{'c': 1}]}, 'items': 2})")
    assert await shared.value("r.a.b[0].c, r['items'], dict(r) == r, isinstance(r, dict)") == "(1, 2, True, True)"
    assert await shared.value("json.dumps(copy.deepcopy(r)) == json.dumps(pickle.loads(pickle.dumps(r)))") == "True"
    assert "no field 'aa'; did you mean 'a'?" in (await shared.cell("r.aa")).error
    assert await shared.value("(await tools.echo(r)) == r") == "True"


async def test_an_untouched_value_as_completion_names_its_call(shared: Kernel) -> None:
    seen = await shared.cell("r = await tools.echo({'a': [1]})\nr")
    (call,) = seen.calls
    (output,) = seen.outputs
    assert (output.stream, output.text, output.call) == ("result", "{'a': [1]}", call.call)
    assert (await shared.cell("tools.echo({'b': 1})")).outputs[0].call == call.call + 1
    assert (await shared.cell("r")).outputs[0].call == call.call
    assert (await shared.cell("dict(r)")).outputs[0].call is None
    assert (await shared.cell("r.a.append(2)\nr")).outputs[0].call is None


async def test_a_failure_is_raised_with_its_data(shared: Kernel) -> None:
    seen = await shared.cell(
        "try:\n    await tools.fail()\nexcept ToolCallError as e:\n    found = e.tool, e.code, str(e)\nfound"
    )
    assert seen.result == "('tools.fail', 'not_found', 'there is nothing')"
    assert seen.ended.unawaited == ()
    assert (await shared.cell("tools.fail()")).error == "ToolCallError: there is nothing"


async def test_a_failure_nobody_looked_at_is_reported_at_the_end(shared: Kernel) -> None:
    seen = await shared.cell("tools.fail()\ntools.echo(1)\n'done'")
    assert (seen.status, seen.result) == ("ok", "'done'")
    assert seen.ended.unawaited == ("tools.fail: not_found: there is nothing",)


async def test_a_cell_ends_only_when_every_accepted_call_has_settled(shared: Kernel) -> None:
    order: list[str] = []

    def on(signal: object) -> None:
        if isinstance(signal, HostCall):
            order.append(signal.target)
        elif isinstance(signal, Output):
            order.append(signal.text)

    # the second call is made, by a thread, after the code of the cell has ended
    seen = await shared.cell(
        "import threading\nheld = tools.slow('late')\nfirst = threading.Event()\n"
        "def go():\n    first.wait()\n    tools.release()\n"
        "threading.Thread(target=go).start()\n"
        "asyncio.get_running_loop().call_later(0.05, first.set)\n'end of code'",
        on=on,
    )
    assert seen.status == "ok"
    assert order == ["tools.slow", "'end of code'", "tools.release"]
    assert await shared.value("held.done()") == "True"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("tools.read()", "missing a required argument: 'path'; write tools.read(path: str, limit: int = 2000)"),
        ("tools.read('a', 1, 2)", "too many positional arguments"),
        ("tools.read('a', lines=3)", "unexpected keyword argument 'lines'"),
        ("tools.echo({'a': [{1, 2}]})", "at value['a'][0]: set is not a JSON value"),
        ("tools.echo(float('nan'))", "at value: nan is not a JSON number"),
        ("tools.echo({1: 2})", "keys are strings"),
        ("tools.echo(tools.echo(1))", "at value: Call is not a JSON value"),
        ("tools.echo(2**70)", "pass it as a string"),
    ],
)
async def test_wrong_arguments_never_leave_the_kernel(shared: Kernel, call: str, words: str) -> None:
    seen = await shared.cell(f"try:\n    {call}\nexcept ToolCallError as e:\n    print(e.code)\n    raise")
    assert words in seen.error
    assert seen.text() == "bad_arguments\n"
    assert [c for c in seen.calls if c.arguments.get("value") != 1] == []


async def test_tuples_and_paths_are_converted(shared: Kernel) -> None:
    seen = await shared.cell("from pathlib import Path\ntools.echo({'a': (1, Path('/x'), {'b': ()})})")
    assert seen.calls[0].arguments == {"value": {"a": [1, "/x", {"b": []}]}}


@pytest.mark.parametrize(
    "use",
    [
        "c['a']",
        "c.text",
        "list(c)",
        "len(c)",
        "bool(c)",
        "c == 1",
        "c < 1",
        "'a' in c",
        "c + 1",
        "json.dumps(c)",
        "c['a'] = 1",
    ],
)
async def test_an_unresolved_call_used_as_a_value_teaches(shared: Kernel, use: str) -> None:
    seen = await shared.cell(f"import json\nc = tools.echo(1)\n{use}")
    assert seen.status == "error"
    assert "await" in seen.error
    assert await shared.value("f'{c}'.startswith('<Call tools.echo')") == "True"


async def test_namespaces_are_read_only_and_name_the_nearest(shared: Kernel) -> None:
    assert (await shared.cell("tools.reed")).error == "AttributeError: tools has no 'reed'; did you mean tools.read?"
    assert "read-only" in (await shared.cell("tools.read = 1")).error
    assert "read-only" in (await shared.cell("del tools.read")).error
    assert await shared.value("import inspect; str(inspect.signature(tools.read)), tools.read.__name__") == (
        "('(path: str, limit: int = 2000) -> Call', 'read')"
    )


async def test_a_saved_function_works_in_a_later_cell(shared: Kernel) -> None:
    await shared.cell("def helper(n): return tools.echo(n).result()\necho = tools.echo")
    seen = await shared.cell("helper(1) + await echo(2)")
    assert seen.result == "3"
    assert len(seen.calls) == 2


async def test_work_left_behind_by_an_earlier_cell_is_refused(shared: Kernel) -> None:
    await shared.cell(
        "import threading\nfound = {}\ngo = threading.Event()\ngo_task = asyncio.Event()\n"
        "def attempt(name):\n"
        "    try:\n        found[name] = tools.echo(1)\n"
        "    except ToolCallError as e:\n        found[name] = type(e).__name__, e.code\n"
        "def in_thread():\n    go.wait(); attempt('thread')\n"
        "def in_worker():\n    go.wait(); attempt('to_thread')\n"
        "async def in_task():\n    await go_task.wait(); attempt('task')\n"
        "thread = threading.Thread(target=in_thread); thread.start()\n"
        "task = asyncio.create_task(in_task())\nworker = asyncio.create_task(asyncio.to_thread(in_worker))\n"
        "await asyncio.sleep(0.05)"
    )
    seen = await shared.cell("go.set(); go_task.set()\nawait task; await worker; thread.join()\nsorted(found.items())")
    assert seen.calls == []
    assert ast.literal_eval(seen.result) == [
        (name, ("StaleLease", "stale_lease")) for name in ("task", "thread", "to_thread")
    ]


async def test_the_host_refuses_a_stale_call_on_its_own(shared: Kernel) -> None:
    # a program that gets round the kernel's check: it keeps the lease of an earlier cell alive
    await shared.cell(
        "import sys\nleases = sys.modules['prime_kernel.lease']\nold = leases.carried()\n"
        "old.end = lambda: False if old.pending else True"
    )
    seen = await shared.cell("old.ended = False\nleases._carried.set(old)\ntools.echo(1)")
    assert "outside the running cell" in seen.error
    assert seen.calls == []
    assert await shared.value("await tools.echo(2)") == "2"


async def test_cancelling_the_waiting_task_cancels_the_call(shared: Kernel) -> None:
    seen = await shared.cell(
        "c = tools.slow(1)\ntry:\n    await asyncio.wait_for(c, 0.05)\nexcept TimeoutError:\n    print('over')"
    )
    assert (seen.status, seen.text()) == ("ok", "over\n")
    assert [s.call for s in seen.signals if isinstance(s, CallCancelled)] == [seen.calls[0].call]
    seen = await shared.cell(
        "c = tools.slow(1)\n"
        "async def wait(): return await c\n"
        "one, two = asyncio.create_task(wait()), asyncio.create_task(wait())\n"
        "await asyncio.sleep(0)\none.cancel()\nawait asyncio.sleep(0)\nawait tools.release()\nawait two"
    )
    assert seen.result == "1"
    assert not any(isinstance(s, CallCancelled) for s in seen.signals)


async def test_a_result_that_takes_too_long_keeps_running(shared: Kernel) -> None:
    seen = await shared.cell(
        "c = tools.slow(7)\ntry:\n    c.result(timeout=0.01)\nexcept TimeoutError as e:\n    print(e)\n"
        "await tools.release()\nc.result()"
    )
    assert "did not settle within 0.01 s; it still runs" in seen.text()
    assert seen.result == "7"


async def test_the_cap_of_calls_is_a_catchable_error(tmp_path: Path) -> None:
    small = kernel(tmp_path, max_calls=3)
    try:
        code = (
            "for n in range(5):\n    try:\n        await tools.echo(n)\n"
            "    except ToolCallError as e:\n        print(n, e.code)"
        )
        for _ in range(2):
            seen = await small.cell(code)
            assert (seen.text(), len(seen.calls)) == ("3 too_many_calls\n4 too_many_calls\n", 3)
    finally:
        await small.repl.close()


async def test_a_forked_child_cannot_call(shared: Kernel) -> None:
    code = (
        "import os\nr, w = os.pipe()\npid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        tools.echo(1)\n"
        "    except ToolCallError as e:\n        os.write(w, e.code.encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\nos.read(r, 99)"
    )
    assert await shared.value(code) == "b'forked'"
    assert await shared.value("await tools.echo(1)") == "1"


async def test_a_large_value_passes_and_a_too_large_one_is_refused(shared: Kernel) -> None:
    assert await shared.value("len(await tools.echo('x' * 5_000_000))") == "5000000"
    assert "over the limit" in (await shared.cell("tools.echo('x' * 70_000_000)")).error
    assert await shared.value("await tools.echo(1)") == "1"


async def test_many_concurrent_calls(shared: Kernel) -> None:
    seen = await shared.cell("sum(await asyncio.gather(*[tools.echo(n) for n in range(2_000)]))")
    assert seen.result == str(sum(range(2_000)))
    assert len(seen.calls) == 2_000

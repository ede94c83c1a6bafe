"""A real small model in a real llama.cpp server. Opt in with ``pytest -m real_model``.

Needs ``PRIME_REPL_TEST_LLAMA_SERVER`` (path of the program ``llama-server``) and ``PRIME_REPL_TEST_MODEL`` (path of
the file that ``scripts/fetch-test-model`` stores). It shows that the path to a model works, not how good a model is.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from prime.messages import CallPart, Header, Message, Parameters, Request, TextPart, ToolSpec, text_of
from prime.providers.local import LocalProvider
from prime.providers.profiles import Profile, profile_for

pytestmark = [pytest.mark.anyio, pytest.mark.real_model]

SYSTEM = "You work by running Python with the repl tool. Look at the output, then answer in one short sentence."
REPL = ToolSpec(
    name="repl",
    description="Run Python code. Returns what it prints and the value of the last expression.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
#: Runs code from standard input and prints the value of its last expression, as the real repl shows it.
ECHO = """
import ast, sys
tree, names = ast.parse(sys.stdin.read()), {}
last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
exec(compile(tree, "cell", "exec"), names)
if last and (value := eval(compile(ast.Expression(last.value), "cell", "eval"), names)) is not None:
    print(repr(value))
"""


@pytest.fixture(params=["native", "fenced"])
async def model(request: pytest.FixtureRequest) -> AsyncIterator[LocalProvider]:
    program, file = (os.environ.get(f"PRIME_REPL_TEST_{name}") for name in ("LLAMA_SERVER", "MODEL"))
    if not program or not file:
        pytest.skip("set PRIME_REPL_TEST_LLAMA_SERVER and PRIME_REPL_TEST_MODEL (see scripts/fetch-test-model)")
    row = profile_for("qwen2.5-coder")
    profile = Profile(**{**dict(row), "calls": request.param})
    environment = {"PATH": os.defpath, "HOME": str(Path.home())}
    provider = LocalProvider("local/test", Path(file), Path(program), environment=environment, profile=profile)
    yield provider
    await provider.close()


def request_of(*messages: Message) -> Request:
    header = Header(model="local/test", system=SYSTEM, tools=(REPL,), parameters=Parameters(max_tokens=300))
    return Request(header=header, messages=messages)


def user(words: str) -> Message:
    return Message(role="user", parts=(TextPart(text=words),))


def run(arguments: str, folder: Path) -> str:
    code = json.loads(arguments)["code"]
    done = subprocess.run(
        [sys.executable, "-c", ECHO], input=code, cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    return (done.stdout + done.stderr[-300:]).strip() or "(no output)"


async def answer(model: LocalProvider, question: str, folder: Path) -> tuple[bool, str]:
    """Return whether a call was made, and the final answer."""
    messages, called = [user(question)], False
    for _ in range(5):
        reply = await model.reply(request_of(*messages), lambda delta: None)
        messages.append(Message(role="assistant", parts=reply.parts))
        calls = [part for part in reply.parts if isinstance(part, CallPart)]
        for call in calls:
            called = True
            shown = TextPart(text=run(call.arguments, folder))
            messages.append(Message(role="tool", call_id=call.call_id, parts=(shown,)))
        if not calls:
            break
    return called, text_of(reply.parts)


async def test_most_small_tasks_are_done(model: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("line\n" * 17)
    tasks = {
        "What is the sum of the integers from 1 to 100?": "5050",
        "How many vowels are in 'the quick brown fox jumps over the lazy dog'?": "11",
        "How many lines does the file lines.txt have?": "17",
        "What is 48271 * 9377?": "452637167",
        "Sort the list [31, 4, 15, 9, 26, 5] in ascending order.": "4, 5, 9, 15, 26, 31",
        "What is the 10th Fibonacci number, with F(1) = F(2) = 1?": "55",
    }
    results = {question: await answer(model, question, tmp_path) for question in tasks}
    called = [question for question, (made, _) in results.items() if made]
    right = [q for q, (_, said) in results.items() if tasks[q] in said or tasks[q] in said.replace(",", "")]
    assert len(called) >= 5, results
    assert len(right) >= 4, results


async def test_a_longer_conversation_is_served_from_the_prefix_cache(model: LocalProvider) -> None:
    messages = [user("What is 2 + 3?")]
    first = await model.reply(request_of(*messages), lambda delta: None)
    messages += [Message(role="assistant", parts=first.parts)]
    messages += [
        Message(role="tool", call_id=part.call_id, parts=(TextPart(text="5"),))
        for part in first.parts
        if isinstance(part, CallPart)
    ] or [user("And 2 + 4?")]
    second = await model.reply(request_of(*messages), lambda delta: None)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.cache_read >= 0.9 * first.usage.prompt
    assert second.usage.prompt > first.usage.prompt

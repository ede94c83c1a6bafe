"""What stands before the calls of real cells: one decision before each effect, and questions that somebody answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prime import Agent, tool
from prime.app import Workshop, workshop
from prime.approvals import Approval, Gate, Verdict
from prime.config import Config
from prime.events import CellEnded
from prime.gate import Rules, parsed
from prime.messages import text_of
from prime.testing import ScriptedProvider
from prime.tools.bash import bash
from prime.tools.fetch import fetch
from prime.tools.read import read
from prime.tools.workspace import Workspace
from prime.tools.write import write

pytestmark = pytest.mark.anyio

TRY = "try:\n    print(await {})\nexcept ToolCallError as error:\n    print(error.code, error)"


class Somebody:
    """Answers questions as a test says, and keeps them. ``leave``: what to say to the next ones."""

    def __init__(self, leave: bool = True, always: bool = False) -> None:
        self.asked: list[Approval] = []
        self.verdict = Verdict(leave, "person", always)
        self.waiting = asyncio.Event()
        self.hurry = asyncio.Event()
        self.hurry.set()

    async def __call__(self, approval: Approval) -> Verdict:
        self.asked.append(approval)
        self.waiting.set()
        await self.hurry.wait()
        return self.verdict


@tool(effects=True)
def strike(where: str) -> str:
    """Have an effect."""
    return f"struck {where}"


@asynccontextmanager
async def shop(
    home: Path, *lines: str, approve: Callable[[Approval], Awaitable[Verdict]] | None = None, **options: Any
) -> AsyncIterator[Workshop]:
    work = home.parent / "work"
    work.mkdir(exist_ok=True)
    config = Config(home=home, gate=lines, **options)
    async with workshop(config, work, tools=[strike], approve=approve) as opened:
        yield opened


async def cell(opened: Workshop, code: str) -> CellEnded:
    return await opened.cells.run(code, None, asyncio.Event())


async def tried(opened: Workshop, call: str) -> str:
    ended = await cell(opened, TRY.format(call))
    assert ended.status == "ok", text_of(ended.shown)
    return text_of(ended.shown)


def told(opened: Workshop) -> list[tuple[str, ...]]:
    """Return what the log says about calls: which, and what was decided."""
    said: list[tuple[str, ...]] = []
    for entry in opened.log.entries():
        match (event := entry.event).type:
            case "dispatch_started":
                said.append(("started", event.target, event.gate))
            case "dispatch_refused":
                said.append(("refused", event.target, event.rule))
            case "approval_requested":
                said.append(("asked", event.target, event.rule))
            case "approval_given":
                said.append((event.outcome, event.scope, event.by))
    return said


async def test_each_effect_has_one_decision_before_it(home: Path) -> None:
    async with shop(home, "deny tools.bash", "allow tools.read") as opened:
        for call in ("strike('a')", "bash('true')", "read('no')", "glob('*')", "fetch('http://127.0.0.1:9/')"):
            await tried(opened, f"tools.{call}")
        assert told(opened) == [
            ("started", "tools.strike", "default"),
            ("refused", "tools.bash", "deny tools.bash"),
            ("started", "tools.read", "allow tools.read"),
            ("started", "tools.glob", None),
            ("started", "tools.fetch", "default"),
        ]


async def test_what_is_denied_is_an_error_that_a_program_can_catch(home: Path) -> None:
    async with shop(home, "deny tools.write path=kept") as opened:
        (home.parent / "work" / "link").symlink_to(home.parent / "work" / "kept")
        for path in ("kept", "../work/kept", "kept/deep/a", "link"):
            shown = await tried(opened, f"tools.write(path={path!r}, content='x')")
            assert shown == "denied tools.write is not allowed here (deny tools.write path=kept); it did not begin"
        assert "operation" in await tried(opened, "tools.write(path='other', content='x')")
        assert not (home.parent / "work" / "kept").exists()


async def test_to_ask_with_nobody_to_answer_is_to_refuse(home: Path) -> None:
    async with shop(home, gate_default="ask") as opened:
        shown = await tried(opened, "tools.strike('a')")
        assert shown.startswith("denied tools.strike needs an approval (default), and nobody can give one here")
        assert told(opened) == [("refused", "tools.strike", "default")]


async def test_a_question_is_answered_once_or_for_the_session(home: Path) -> None:
    somebody = Somebody()
    async with shop(home, "ask tools.strike", approve=somebody) as opened:
        assert await tried(opened, "tools.strike(where='a')") == "struck a"
        somebody.verdict = Verdict(False, "person")
        assert await tried(opened, "tools.strike('b')") == "denied tools.strike was denied by person; it did not begin"
        somebody.verdict = Verdict(True, "person", always=True)
        assert await tried(opened, "tools.strike('c')") == "struck c"
        assert await tried(opened, "tools.strike('d')") == "struck d"
        assert [approval.arguments for approval in somebody.asked] == [{"where": where} for where in "abc"]
        rule = "ask tools.strike"
        assert told(opened) == [
            *(("asked", "tools.strike", rule), ("allowed", "once", "person"), ("started", "tools.strike", rule)),
            *(("asked", "tools.strike", rule), ("denied", "once", "person"), ("refused", "tools.strike", rule)),
            *(("asked", "tools.strike", rule), ("allowed", "session", "person"), ("started", "tools.strike", rule)),
            ("started", "tools.strike", rule),
        ]


async def test_questions_come_one_at_a_time_in_order_and_hold_back_what_follows(home: Path) -> None:
    somebody = Somebody()
    async with shop(home, "ask tools.read", "ask tools.strike", approve=somebody) as opened:
        code = "calls = [tools.read('a'), tools.strike('b'), tools.glob('*'), tools.read('c')]\n"
        await cell(
            opened,
            code + "await asyncio.gather(*calls, return_exceptions=True);".replace("asyncio", "__import__('asyncio')"),
        )
        assert [event[1] for event in told(opened) if event[0] == "started"] == [
            *("tools.read", "tools.strike", "tools.glob", "tools.read")
        ]
        assert [approval.target for approval in somebody.asked] == ["tools.read", "tools.strike", "tools.read"]


async def test_waiting_for_an_answer_does_not_use_the_cells_time_up(home: Path) -> None:
    somebody = Somebody()
    somebody.hurry.clear()
    async with shop(home, "ask tools.strike", approve=somebody, cell_timeout_s=0.5) as opened:
        await cell(opened, "1")  # the kernel is there
        running = asyncio.create_task(cell(opened, "await tools.strike('a')"))
        await asyncio.wait_for(somebody.waiting.wait(), 10)
        done, _ = await asyncio.wait({running}, timeout=1.5)
        assert done == set()
        somebody.hurry.set()
        assert (await running).status == "ok"
        # once it is answered, the time counts again
        assert (
            await cell(opened, "await tools.strike('b')\nawait __import__('asyncio').sleep(60)")
        ).status == "timeout"


async def test_an_interrupt_takes_the_question_back(home: Path) -> None:
    somebody = Somebody()
    somebody.hurry.clear()
    async with shop(home, "ask tools.strike", approve=somebody) as opened:
        cancel = asyncio.Event()
        running = asyncio.create_task(opened.cells.run("await tools.strike('a')", None, cancel))
        await asyncio.wait_for(somebody.waiting.wait(), 10)
        cancel.set()
        assert (await running).status == "interrupted"
        somebody.hurry.set()
        assert told(opened) == [("asked", "tools.strike", "ask tools.strike"), ("withdrawn", "once", "nobody")]
        assert opened.log.state.trace.quiet


async def test_a_call_that_nobody_awaits_any_more_is_not_asked_about(home: Path) -> None:
    somebody = Somebody()
    somebody.hurry.clear()
    async with shop(home, "ask tools.strike", approve=somebody) as opened:
        code = "try: await asyncio.wait_for(tools.strike('a'), 0.2)\nexcept TimeoutError: print('late')"
        ended = await cell(opened, f"import asyncio\n{code}")
        assert text_of(ended.shown).startswith("late")
        assert told(opened)[1:] == [("withdrawn", "once", "nobody")]
        somebody.hurry.set()
        assert await tried(opened, "tools.strike('b')") == "struck b"


async def test_an_approver_that_fails_gives_no_leave(home: Path) -> None:
    async def broken(approval: Approval) -> Verdict:
        raise OSError("no terminal")

    async with shop(home, "ask tools.strike", approve=broken) as opened:
        shown = await tried(opened, "tools.strike('a')")
        assert shown.startswith("denied tools.strike was denied by nobody: asking failed with OSError: no terminal")


async def test_a_call_that_would_fail_anyway_is_not_asked_about(home: Path) -> None:
    somebody = Somebody()
    async with shop(home, "ask *", approve=somebody) as opened:
        assert (await tried(opened, "tools.strike(where=7)")).startswith("bad_arguments")
        assert (await tried(opened, "tools.strike(where=float('-0.0'))")).startswith("bad_arguments")
        assert somebody.asked == []


@pytest.mark.parametrize(
    ("leave", "allowed"), [(True, True), ("always", True), (False, False), (None, False), (1, False)]
)
async def test_a_program_may_be_the_one_to_answer(home: Path, tmp_path: Path, leave: Any, allowed: bool) -> None:
    asked: list[str] = []

    async def later(approval: Approval) -> Any:
        asked.append(approval.target)
        return leave

    def now(approval: Approval) -> Any:
        asked.append(approval.target)
        return leave

    for approve in (later, now):
        async with Agent(
            ScriptedProvider([]), cwd=tmp_path, tools=[strike], approve=approve, home=home, gate=["ask tools.*"]
        ) as agent:
            for _ in range(2):
                ended = await agent.cell(TRY.format("tools.strike('a')"))
                assert ("struck" in text_of(ended.shown)) is allowed
    assert len(asked) == (2 if leave == "always" else 4)


def decided(rule: str, item: Any, **arguments: Any) -> str | None:
    decision = Gate(Rules((parsed(rule),))).decide(item, arguments, Workspace("/work"))
    return decision.effect if decision is not None else None


async def test_what_a_call_is_about_is_read_from_its_arguments() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: /etc/b\n@@\n*** End Patch"
    assert decided("deny * path=src", write, patch=patch) == "deny"
    assert decided("deny * path=/etc", write, patch=patch) == "deny"
    assert decided("deny * path=other", write, patch=patch) == "allow"
    assert decided("deny * path=src", write, patch="*** Begin Patch\n\t*** Delete File:src/a \n*** End Patch") == "deny"
    assert decided("deny * path=src", read, paths=["a", "src/b"]) == "deny"
    assert decided("deny * path=src", bash, command="true", cwd="src") == "deny"
    assert decided("deny * path=src", read, path="src/\0") == "deny"
    assert decided("deny * host=a.org", fetch, url="http://user@A.org.:80/x") == "deny"
    assert decided("deny * host=a.org", fetch, url="http://[") == "allow"
    assert decided("deny * command=rm*", bash, command="ls; rm x") == "deny"

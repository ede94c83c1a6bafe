"""The agent: what is said to it, at whatever moment, is run exactly once or taken back."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch import happened, kinds, of

from prime import events as ev
from prime.agent import Answer
from prime.caps import Limits
from prime.errors import PrimeError
from prime.messages import Delta, Request, text_of
from prime.sessions import Sessions
from prime.testing import ScriptedCell, ScriptedRepl, Stage, scripted
from prime.verify import verify

pytestmark = pytest.mark.anyio


async def hanging(code: str, cell: ScriptedCell) -> object:
    """Never end."""
    cell.print("at work")
    await asyncio.Event().wait()
    return None


def said(stage: Stage) -> list[str]:
    """What was claimed, in order."""
    return [text_of(event.parts) for event in of(stage.log, "user_said")]


def reply_to_last(request: Request) -> dict[str, Any]:
    return {"text": f"re: {text_of(request.messages[-1].parts)}"}


async def test_asks_are_answered_one_turn_each_in_order(home: Path) -> None:
    async with scripted(reply_to_last, home=home) as stage:
        answers = await asyncio.gather(*(stage.agent.ask(str(number)) for number in range(5)))
        assert [(answer.text, answer.turn) for answer in answers] == [(f"re: {n}", n + 1) for n in range(5)]


async def test_an_ask_given_up_while_it_waits_never_runs(home: Path) -> None:
    async with scripted([{"hang": True}, {"text": "third"}], home=home) as stage:
        first = asyncio.create_task(stage.agent.ask("first"))
        await happened(stage.log, "step_started")
        second = asyncio.create_task(stage.agent.ask("second"))
        third = asyncio.create_task(stage.agent.ask("third"))
        await happened(stage.log, "input_queued", 3)
        second.cancel()
        stage.agent.interrupt()
        assert (await first).reason == "cancelled"
        assert (await third).text == "third"
        assert second.cancelled()
        assert said(stage) == ["first", "third"]
        assert len(of(stage.log, "input_withdrawn")) == 1


async def test_an_ask_given_up_while_it_runs_ends_its_turn(home: Path) -> None:
    async with scripted([{"text": "I think", "hang": True}, {"text": "next"}], home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("first"))
        await happened(stage.log, "step_started")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        # when the caller goes on, the turn is over
        assert stage.log.state.trace.quiet
        assert of(stage.log, "turn_ended")[0].reason == "cancelled"
        assert (await stage.agent.ask("second")).text == "next"


async def test_an_answered_ask_that_is_cancelled_leaves_the_next_turn_alone(home: Path) -> None:
    async with scripted([{"text": "one"}, {"text": "two", "delay_s": 0.02}], home=home) as stage:
        first = asyncio.create_task(stage.agent.ask("first"))
        second = asyncio.create_task(stage.agent.ask("second"))

        def cancel_first(entry: ev.Entry) -> None:
            if isinstance(entry.event, ev.TurnStarted) and entry.turn == 2:
                first.cancel()

        stage.log.observe(cancel_first)
        assert (await second).reason == "completed"


async def test_an_input_that_arrives_while_the_turn_is_cancelled_runs_once(home: Path) -> None:
    async with scripted([{"hang": True}, {"text": "second"}, {"text": "never"}], home=home) as stage:
        first = asyncio.create_task(stage.agent.ask("first"))
        await happened(stage.log, "step_started")
        stage.agent.interrupt()
        second = asyncio.create_task(stage.agent.ask("second"))
        assert (await first).reason == "cancelled"
        assert (await second).text == "second"
        assert said(stage) == ["first", "second"]
        assert len(stage.provider.requests) == 2


async def test_an_input_that_arrives_during_a_retry_wait_runs_once(home: Path) -> None:
    replies = [{"error": {"code": "server", "retry_after_s": 0.05}}, {"text": "one"}, {"text": "two"}]
    async with scripted(replies, home=home) as stage:
        first = asyncio.create_task(stage.agent.ask("first"))
        await happened(stage.log, "retry_scheduled")
        second = asyncio.create_task(stage.agent.ask("second"))
        assert (await first).text == "one"
        assert (await second).text == "two"
        assert said(stage) == ["first", "second"]


async def test_an_input_taken_back_before_its_turn_starts_no_empty_turn(home: Path) -> None:
    async with scripted([{"text": "never"}], hanging, home=home) as stage:
        by_hand = asyncio.create_task(stage.agent.cell("x"))
        await happened(stage.log, "cell_output")
        steered = stage.agent.steer("do it")
        await asyncio.sleep(0.01)  # the driver waits for the cell now
        assert stage.agent.withdraw(steered)
        stage.agent.interrupt()
        await by_hand
        await asyncio.sleep(0.01)
        assert "turn_started" not in kinds(stage.log)
        assert not stage.agent.withdraw(steered)


async def test_interrupt_stops_a_running_cell_and_sends_nothing_more(home: Path) -> None:
    async with scripted([{"code": "x"}], hanging, home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "cell_output")
        stage.agent.interrupt()
        assert (await asking).reason == "cancelled"
        assert of(stage.log, "cell_ended")[0].status == "interrupted"
        assert len(stage.provider.requests) == 1
        stage.agent.interrupt()  # nothing runs: nothing happens
        assert kinds(stage.log)[-1] == "turn_ended"


async def test_interrupt_while_the_kernel_starts_runs_nothing(home: Path) -> None:
    ready = asyncio.Event()
    async with scripted([{"code": "x"}], ScriptedRepl(ready=ready), home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "cell_started")
        stage.agent.interrupt()
        await asyncio.sleep(0.01)
        ready.set()
        assert (await asking).reason == "cancelled"
        assert stage.repl.codes == []
        (ended,) = of(stage.log, "cell_ended")
        assert (ended.status, ended.generation) == ("interrupted", None)
        assert "before it ran" in text_of(ended.shown)


async def test_leaving_ends_the_running_turn_and_keeps_what_waits(home: Path) -> None:
    async with scripted([{"hang": True}], home=home) as stage:
        first = asyncio.create_task(stage.agent.ask("first"))
        await happened(stage.log, "step_started")
        second = asyncio.create_task(stage.agent.ask("second"))
        await happened(stage.log, "input_queued", 2)
    assert (await first).reason == "cancelled"
    with pytest.raises(PrimeError, match="closed"):
        await second
    with pytest.raises(PrimeError, match="async with"):
        await stage.agent.ask("third")
    with pytest.raises(PrimeError, match="async with"):
        await stage.agent.cell("1")
    # it was said, so it is run when the session is opened again
    async with scripted([{"text": "yes"}], home=home, session=stage.log.session) as again:
        await happened(again.log, "turn_ended", 2)
        assert said(again) == ["first", "second"]


async def test_a_cell_by_hand_runs_between_turns_and_the_model_is_not_told(home: Path) -> None:
    async with scripted([{"text": "a"}, {"text": "b"}], home=home) as stage:
        await stage.agent.ask("one")
        ended = await stage.agent.cell("1 + 1")
        assert (ended.status, ended.call_id, text_of(ended.shown)) == ("ok", None, "'1 + 1'")
        await stage.agent.ask("two")
        assert [message.role for message in stage.provider.requests[-1].messages] == ["user", "assistant", "user"]


async def test_a_cell_by_hand_that_is_given_up_ends_in_the_log(home: Path) -> None:
    async with scripted([{"text": "a"}], hanging, home=home) as stage:
        by_hand = asyncio.create_task(stage.agent.cell("x"))
        await happened(stage.log, "cell_output")
        by_hand.cancel()
        with pytest.raises(asyncio.CancelledError):
            await by_hand
        assert of(stage.log, "cell_ended")[0].status == "interrupted"
        assert (await stage.agent.ask("one")).text == "a"


async def test_streaming_yields_entries_and_pieces_and_ends_with_the_turn(home: Path) -> None:
    async with scripted([{"text": "word " * 20, "code": "x"}, {"text": "done"}], home=home) as stage:
        items = [item async for item in stage.agent.stream("go")]
        entries = [item for item in items if isinstance(item, ev.Entry)]
        assert [entry.seq for entry in entries] == list(range(entries[0].seq, len(stage.log)))
        assert isinstance(entries[0].event, ev.InputQueued)
        assert isinstance(items[-1], ev.Entry)
        assert isinstance(items[-1].event, ev.TurnEnded)
        text = "".join(item.text for item in items if isinstance(item, Delta) and item.kind == "text")
        assert text == "word " * 20 + "done"
        # the pieces come while the request runs, not after it
        first_piece = next(index for index, item in enumerate(items) if isinstance(item, Delta))
        replied = next(
            index
            for index, item in enumerate(items)
            if isinstance(item, ev.Entry) and isinstance(item.event, ev.ModelReplied)
        )
        assert first_piece < replied


async def test_a_stream_that_is_left_ends_its_turn(home: Path) -> None:
    async with scripted([{"text": "a" * 100, "hang": True}, {"text": "next"}], home=home) as stage:
        stream = stage.agent.stream("go")
        async for item in stream:
            if isinstance(item, Delta):
                break
        await stream.aclose()
        assert of(stage.log, "turn_ended")[0].reason == "cancelled"
        assert (await stage.agent.ask("go")).text == "next"


async def test_a_listener_that_raises_disturbs_nobody(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(item: object) -> None:
        raise RuntimeError("a bad listener")

    async with scripted([{"text": "done"}], home=home) as stage:
        stop = stage.agent.observe(broken)
        assert (await stage.agent.ask("go")).text == "done"
        stop()
    assert "a bad listener" in caplog.text


async def test_a_log_that_cannot_be_written_any_more_stops_the_agent_with_its_words(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted([{"hang": True}], home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "step_started")
        stage.log.close()
        stage.agent.interrupt()
        with pytest.raises(Exception, match="close"):
            async with asyncio.timeout(5):
                await asking
        with pytest.raises(PrimeError, match="not running"):
            await stage.agent.ask("more")


REPLIES = [
    {"text": "done"},
    {"text": "one moment", "code": ["call", "quick"]},
    {"code": ["hang"]},
    {"code": ["bad", "call"]},
    {"text": "thinking", "hang": True},
    {"error": {"code": "server", "retry_after_s": 0.0}},
    {"error": {"code": "server", "retry_after_s": 60.0}},
    {"error": {"code": "auth"}},
    {"error": {"code": "overflow"}},
    {"text": "cut", "code": "quick", "stop": "length"},
    {},
    {"call": {"name": "fly"}},
]

ACTS = st.sampled_from(
    [
        "ask",
        "ask",
        "steer",
        "inform",
        "notify",
        "notify",
        "withdraw",
        "interrupt",
        "give up",
        "cell",
        "tick",
        "tick",
        "event",
        "event",
    ]
)


@given(st.lists(ACTS, max_size=25), st.lists(st.integers(0, len(REPLIES) - 1), max_size=12), st.integers(0, 2**32))
@settings(max_examples=40)
def test_no_interleaving_loses_or_doubles_an_input(acts: list[str], replies: list[int], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session, withdrawn = asyncio.run(_interleave(Path(folder), acts, replies, random.Random(seed)))
        sessions = Sessions(Path(folder))
        with sessions.read(session) as store:
            verify(store)
        with sessions.open(session) as log:
            events = [entry.event for entry in log.entries()]
            assert log.state.trace.quiet
    assert "interrupted" not in [
        event.reason for event in events if isinstance(event, ev.TurnEnded)
    ]  # nothing to repair
    queued = [event.input_id for event in events if isinstance(event, ev.InputQueued)]
    claimed = [event.input_id for event in events if isinstance(event, ev.InputClaimed)]
    taken_back = [event.input_id for event in events if isinstance(event, ev.InputWithdrawn)]
    assert Counter(claimed + taken_back) == Counter(queued)
    assert withdrawn <= set(taken_back)
    asks = [event.input_id for event in events if isinstance(event, ev.InputQueued) and event.kind == "ask"]
    assert [each for each in claimed if each in asks] == [each for each in asks if each not in taken_back]


async def _play(code: str, cell: ScriptedCell) -> object:
    if code == "hang":
        return await hanging(code, cell)
    if code == "bad":
        raise ValueError(code)
    if code == "call":
        calls = [cell.submit("tools.write", path=f"{number}.txt", content="x") for number in range(3)]
        await asyncio.gather(*calls)
    return code


async def _interleave(home: Path, acts: list[str], replies: list[int], luck: random.Random) -> tuple[str, set[str]]:
    script = iter(replies)

    def compose(request: Request) -> Any:
        return REPLIES[next(script, 0)]

    asking: list[asyncio.Task[Answer]] = []
    by_hand: list[asyncio.Task[ev.CellEnded]] = []
    spoken: list[str] = []
    withdrawn: set[str] = set()
    async with scripted(compose, _play, home=home, limits=Limits(max_steps=6)) as stage:
        agent = stage.agent
        act: dict[str, Callable[[], Any]] = {
            "ask": lambda: asking.append(asyncio.create_task(agent.ask("ask"))),
            "steer": lambda: spoken.append(agent.steer("steer")),
            "inform": lambda: spoken.append(agent.inform("inform")),
            "notify": lambda: spoken.append(agent.notify("news", source="jobs.1", wake=luck.random() < 0.7)),
            "interrupt": agent.interrupt,
            "give up": lambda: asking and luck.choice(asking).cancel(),
            "cell": lambda: by_hand.append(asyncio.create_task(agent.cell(luck.choice(["quick", "hang"])))),
        }
        for name in acts:
            if name == "tick":
                for _ in range(luck.randrange(30)):
                    await asyncio.sleep(0)
            elif name == "event":
                news = asyncio.Event()
                stop = stage.log.observe(lambda entry, news=news: news.set())  # type: ignore[misc]
                await asyncio.wait({asyncio.ensure_future(news.wait())}, timeout=0.005)
                stop()
                news.set()
            elif name == "withdraw":
                pending = [item.input_id for item in stage.log.state.inbox.pending]
                if pending and agent.withdraw(chosen := luck.choice(pending)):
                    withdrawn.add(chosen)
            else:
                act[name]()
        # whatever hangs is interrupted until nothing is left
        agent.steer("the last")
        while stage.log.state.inbox.pending or not stage.log.state.trace.quiet:
            agent.interrupt()
            await asyncio.sleep(0.002)
        # an ask whose input was withdrawn by its id has no turn to wait for
        for task in (*asking, *by_hand):
            if not task.done():
                task.cancel()
        await asyncio.gather(*asking, *by_hand, return_exceptions=True)
    return stage.log.session, withdrawn

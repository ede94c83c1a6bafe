"""Queries beside the conversation, asked from a real kernel: what goes out, what comes back, what the log has of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prime
from prime import app, replayed
from prime.config import Config
from prime.errors import RequestMismatch
from prime.log import Log, read
from prime.messages import Delta, Reply, Request, Usage, text_of
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions
from prime.store.base import Store
from prime.verify import verify
from prime.views import summary

pytestmark = pytest.mark.anyio

Entry = dict[str, Any]
BATCH = "found = await agents.query_many({prompts})\nprint([r.text for r in found.replies])"


class Model(ScriptedProvider):
    """Runs cells, one a step, and answers their queries. ``most`` of these were open at the same time; it is ``busy``
    from two on."""

    def __init__(self, cells: list[str], answer: Callable[[str], Entry]) -> None:
        replies = iter([*({"code": code, "usage": {"input": 100}} for code in cells), {"text": "done", "usage": {}}])
        super().__init__(lambda request: next(replies) if request.header.tools else answer(prompt(request)))
        self.open = self.most = 0
        self.busy = asyncio.Event()

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        self.open += not request.header.tools
        self.most = max(self.most, self.open)
        if self.open == 2:
            self.busy.set()
        try:
            return await super().reply(request, on_delta)
        finally:
            self.open -= not request.header.tools

    @property
    def queries(self) -> list[Request]:
        return [request for request in self.requests if not request.header.tools]


class Run:
    """A turn of a session, by its log."""

    def __init__(self, home: Path, session: str, answer: prime.Answer, model: Model) -> None:
        with Sessions(home).read(session) as store:
            self.entries = list(read(store))
        self.session, self.answer, self.model = session, answer, model

    def of(self, *kinds: str) -> list[Any]:
        return [entry.event for entry in self.entries if entry.event.type in kinds]

    @property
    def shown(self) -> list[str]:
        return [text_of(event.shown) for event in self.of("cell_ended")]


def prompt(request: Request) -> str:
    return text_of(request.messages[0].parts)


def upper(prompt: str) -> Entry:
    return {"text": prompt.upper(), "usage": {"input": 10, "output": 1}}


async def run(home: Path, cells: list[str], answer: Callable[[str], Entry] = upper, **options: Any) -> Run:
    model = Model(cells, answer)
    async with prime.Agent(model, cwd=home, home=home, **options) as agent:
        said = await agent.ask("go")
    return Run(home, agent.session, said, model)


async def test_a_query_sees_its_prompt_and_nothing_else_and_its_usage_counts_once(home: Path) -> None:
    cell = "r = await agents.query('red', system='be brief', max_tokens=9_999)\nprint(r.text, r.truncated)"
    done = await run(home, [cell], temperature=0.5)
    assert "RED False" in done.shown[0]
    (request,) = done.model.queries
    assert (request.header.system, request.header.tools, len(request.messages)) == ("be brief", (), 1)
    assert (request.header.parameters.max_tokens, request.header.parameters.temperature) == (4096, 0.5)
    assert done.answer.usage == Usage(input=110, output=1)
    with Sessions(home).read(done.session) as store:
        assert verify(store).requests == 3
        assert Log(store).state.usage == {"scripted/replies": Usage(input=110, output=1)}
        assert [line.diverged >= 0 for line in replayed.recorded(store).lines] == [False, False, True]
        assert summary.row(read(store, types=summary.TYPES)).cells == 1


async def test_a_changed_prompt_in_the_log_is_found(home: Path, tmp_path: Path) -> None:
    done = await run(home, ["await agents.query('red')"])

    class Forged(Store):
        def __getattribute__(self, name: str) -> Any:
            return getattr(store, name) if name not in ("rows", "check") else object.__getattribute__(self, name)

        def check(self) -> None: ...

        def rows(self, *args: Any, **options: Any) -> Any:
            for row in store.rows(*args, **options):
                forged = row.type == "query_asked"
                yield row._replace(body=row.body.replace("red", "blue")) if forged else row

    with Sessions(home).read(done.session) as store, pytest.raises(RequestMismatch, match="the query that was sent"):
        verify(Forged())


async def test_a_batch_answers_in_the_order_of_its_prompts_eight_at_a_time(home: Path) -> None:
    def late(said: str) -> Entry:
        return {**upper(said), "delay_s": 0.01 * (20 - int(said[1:]))}

    done = await run(home, [BATCH.format(prompts="[f'q{n}' for n in range(20)]")], late)
    assert str([f"Q{n}" for n in range(20)]) in done.shown[0]
    assert done.model.most == 8
    assert len(done.of("dispatch_started")) == 1
    assert len(done.of("query_ended")) == 20


async def test_the_first_failure_cancels_the_batch_and_waits_before_it_is_raised(home: Path) -> None:
    def answer(said: str) -> Entry:
        failing: Entry = {"text": "abc", "delay_s": 0.05, "error": {"code": "auth", "message": "no such key"}}
        return {"fail": failing, "slow": {"text": "x", "hang": True}}.get(said, upper(said))

    catching = (
        "try:\n    await agents.query_many(['fail', 'slow', 'q1', 'q2'])\n"
        "except ToolCallError as error:\n    print(error.code, error)"
    )
    done = await run(home, [catching, BATCH.format(prompts="['a', 'b', 'c']")], answer, query_parallel=2)
    assert "auth" in done.shown[0]
    assert "prompts[0]: no such key" in done.shown[0]
    assert [prompt(request) for request in done.model.queries] == ["fail", "slow", "a", "b", "c"]
    kinds = [entry.event.type for entry in done.entries]
    second = [place for place, kind in enumerate(kinds) if kind == "query_ended"][1]
    assert second < kinds.index("dispatch_ended")
    assert sorted(event.error.code for event in done.of("query_ended") if event.error) == ["auth", "cancelled"]
    assert "['A', 'B', 'C']" in done.shown[1]


async def test_an_interrupt_reaches_the_requests(home: Path) -> None:
    model = Model([BATCH.format(prompts="['a', 'b']")], lambda said: {"text": "x", "hang": True})
    async with prime.Agent(model, cwd=home, home=home) as agent:
        asking = asyncio.create_task(agent.ask("go"))
        async with asyncio.timeout(20):
            await model.busy.wait()
            agent.interrupt()
            answer = await asking
        assert (answer.reason, model.open) == ("cancelled", 0)
    done = Run(home, agent.session, answer, model)
    assert [event.error.code for event in done.of("query_ended")] == ["cancelled", "cancelled"]


async def test_a_query_is_tried_again_as_the_loops_requests_are(home: Path) -> None:
    answers = iter([{"error": {"code": "server", "status": 503, "retry_after_s": 0.0}}, {"text": "yes"}])
    done = await run(home, ["(await agents.query('?')).text"], lambda said: next(answers))
    assert "'yes'" in done.shown[0]
    number = done.of("query_asked")[0].query
    assert [event.query for event in done.of("request_failed", "retry_scheduled", "query_ended")] == [number] * 3


async def test_the_wait_for_an_answer_does_not_use_the_cells_deadline_up(home: Path) -> None:
    slow = {"text": "abcd", "chunk": 1, "delay_s": 0.5}
    done = await run(home, ["(await agents.query('?')).text"], lambda said: slow, cell_timeout_s=1)
    assert "'abcd'" in done.shown[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("agents.query('')", "prompt is empty"),
        ("agents.query('x' * 1_001)", "prompt has 1,001 characters, at most 1,000"),
        ("agents.query('x', system='y' * 1_001)", "system has 1,001 characters"),
        ("agents.query('x', max_tokens=0)", "max_tokens"),
        ("agents.query_many([])", "there are 0 prompts; give 1 to 3"),
        ("agents.query_many(['x'] * 4)", "there are 4 prompts; give 1 to 3"),
        ("agents.query_many(['x', '  '])", "prompts[1] is empty"),
    ],
)
async def test_a_wrong_call_is_refused_before_anything_is_sent(call: str, said: str, home: Path) -> None:
    done = await run(home, [f"await {call}"], query_characters=1_000, query_prompts=3)
    assert said in done.shown[0]
    assert done.of("query_asked") == []


async def test_a_cut_answer_says_so_and_a_withheld_one_fails(home: Path) -> None:
    answers: dict[str, Entry] = {"cut": {"text": "ab", "stop": "length"}, "held": {"text": "", "stop": "filter"}}
    done = await run(home, ["await agents.query('cut')", "await agents.query('held')"], answers.__getitem__)
    assert '"truncated": true' in done.shown[0]
    assert "the provider withheld the answer" in done.shown[1]


async def test_a_session_that_has_used_its_budget_up_asks_nothing(home: Path) -> None:
    model = Model(["await agents.query('a')"] * 2, lambda said: {"text": "x", "usage": {"input": 10**9}})
    model.model = "deepseek/deepseek-chat"
    async with prime.Agent(model, cwd=home, home=home, budget=1.0) as agent:
        answer = await agent.ask("go")
        assert answer.reason == "max_cost"
        ended = await agent.cell("await agents.query('b')")
        assert "the most that is allowed is $1" in text_of(ended.shown)
        assert len(model.queries) == 1


async def test_cells_without_a_model_have_the_call_and_are_told(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home), tmp_path) as shop:
        ended = await shop.cells.run("await agents.query('a')", None, asyncio.Event())
    assert "without a model" in text_of(ended.shown)


async def test_a_recorded_session_is_replayed_with_its_queries_and_no_model(home: Path) -> None:
    done = await run(home, [BATCH.format(prompts="['a', 'b', 'c']")])
    async with prime.Agent(f"replay/{done.session}", cwd=home, home=home) as agent:
        again = await agent.ask("go")
    assert again.usage == done.answer.usage
    assert Run(home, agent.session, again, done.model).shown == done.shown

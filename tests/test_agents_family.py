"""Children of an agent, with real kernels and a scripted model: how they are started, told, stopped, and told of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from families import Cast, Entry, Logs, ends, family, logged, spawn

import prime
from prime.errors import SessionNotFound
from prime.log import Log
from prime.messages import Request, Usage, text_of
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio

HANG: Entry = {"text": "x", "hang": True}
USAGE = {"input": 100, "output": 10}
COLLECT = (
    "found = await agents.collect([{ids}])\nprint([(r.name, r.outcome, r.text) for r in found.done], found.pending)"
)


def collect(*names: str) -> str:
    return COLLECT.format(ids=", ".join(f"{name}.agent_id" for name in names))


async def test_children_work_in_sessions_and_kernels_of_their_own_and_settle_once(home: Path) -> None:
    work = [{"code": "x = 40 + 2\nimport os\nprint(os.getpid())"}, {"text": "The answer is 42."}]
    cast = Cast({"go": [{"code": spawn("a", "b")}, {"code": collect("a", "b")}], "a": work, "b": work})
    async with family(home, cast) as (agent, logs):
        answer = await agent.ask("go")
        assert await agent.rest(answer) == answer
    assert "[('a', 'completed', 'The answer is 42.'), ('b', 'completed', 'The answer is 42.')] []" in logs.shown()[1]
    assert sorted(logs.settled()) == [("a", "completed"), ("b", "completed")]
    assert logs.notices() == []  # the cell has read what they say
    pids = [event.pid for name in ("root", "a", "b") for event in logs.of(name, "kernel_started")]
    assert len(set(pids)) == 3
    ids = logs.ids()
    assert logs.of("a", "session_created")[0].parent == ids["root"]
    assert ids["a"] == f"{ids['root']}.1"
    assert Sessions(home).ids() == [ids["root"]]
    assert Sessions(home).children(ids["root"]) == [ids["a"], ids["b"]]


async def test_a_child_sees_its_prompt_and_what_it_is_and_nothing_of_the_conversation(home: Path) -> None:
    cast = Cast({"secret": [{"code": spawn("a")}, {"code": collect("a")}], "a": []})
    async with family(home, cast) as (agent, _):
        await agent.ask("secret")
    (request,) = cast.seen("a")
    said = [text_of(message.parts) for message in request.messages]
    assert said[0] == "a"
    assert "You work for another agent, as its child 'a'." in said[1]
    assert len(said) == 2


async def test_a_forked_child_sees_the_completed_turns_and_the_saved_variables(home: Path) -> None:
    cast = Cast(
        {
            "first": [{"code": "kept = 'a value'"}, {"text": "remembered"}],
            "go": [{"code": spawn("a", more="fork=True")}, {"code": collect("a")}],
            "a": [{"code": "print(kept)", "usage": USAGE}, {"text": "seen", "usage": USAGE}],
        }
    )
    async with family(home, cast, snapshot="turn") as (agent, logs):
        await agent.ask("first")
        await agent.ask("go")
    assert "a value" in logs.shown("a")[-1]
    said = [text_of(message.parts) for message in cast.seen("a")[0].messages]
    assert "first" in said
    assert "go" not in said
    assert cast.seen("a")[0].header == cast.seen("first")[0].header  # a provider's cache holds the beginning
    with Sessions(home).read(logs.ids()["a"]) as store:
        assert Log(store).state.usage == {"scripted/replies": Usage(input=200, output=20)}


async def test_a_parent_at_rest_is_woken_by_each_settlement_and_told_once(home: Path) -> None:
    def late(delay_s: float) -> list[Entry]:
        return [{"text": "x" * 10, "delay_s": delay_s, "chunk": 1}]

    names = ("a", "b", "c", "d", "e")
    parts: dict[str, Any] = {name: late(0.02 * place) for place, name in enumerate(names, 1)}
    cast = Cast({"go": [{"code": spawn(*names)}], **parts})
    async with family(home, cast) as (agent, logs):
        answer = await agent.ask("go")
        assert (await agent.rest(answer)).reason == "completed"
    assert sorted(logs.settled()) == [(name, "completed") for name in names]
    notices = logs.notices()
    assert len(notices) == 5
    assert all(sum(f"child {name} " in notice for notice in notices) == 1 for name in names)


async def test_the_log_of_the_parent_grows_with_its_children_and_not_with_their_work(home: Path) -> None:
    work = [*[{"code": f"print({n})", "usage": USAGE} for n in range(20)], {"text": "done", "usage": USAGE}]
    one = Cast({"go": [{"code": spawn("a")}, {"code": collect("a")}], "a": work[-2:]})
    many = Cast({"go": [{"code": spawn("a")}, {"code": collect("a")}], "a": work})
    sizes = []
    for cast in (one, many):
        async with family(home, cast) as (agent, logs):
            await agent.ask("go")
        sizes.append(len(logs.of("root")))
    assert sizes[0] == sizes[1]
    with Sessions(home).read(logs.ids()["root"]) as store:
        assert "scripted/replies" in Log(store).state.usage
        assert Log(store).state.usage["scripted/replies"].output < 200


async def test_every_call_gives_the_same_record(home: Path) -> None:
    cell = (
        f"{spawn('a')}\nfound = await agents.collect([a.agent_id])\nlisted = await agents.list()\n"
        "stopped = await agents.interrupt(a.agent_id)\n"
        "print(a.keys() == found.done[0].keys() == listed[0].keys() == stopped.keys(), listed[0] == found.done[0])"
    )
    cast = Cast({"go": [{"code": cell}], "a": []})
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    assert "True True" in logs.shown()[0]


async def test_interrupting_one_leaves_the_other_untouched_and_the_notice_names_it(home: Path) -> None:
    cast = Cast(
        {
            "go": [{"code": spawn("a", "b")}],
            "stop": [
                {"code": "await agents.interrupt(a.agent_id)\nr = await agents.collect([a.agent_id, b.agent_id])"}
            ],
            "a": [{"code": "await agents.send('parent', 'in')\nawait asyncio.sleep(600)"}],
            "b": [{"code": "await agents.send('parent', 'in')\nawait asyncio.sleep(1)\nprint('whole')"}],
        }
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
        await logged(agent, logs, "input_queued", 3)
        await agent.ask("stop")
        assert dict(logs.settled()) == {"a": "cancelled", "b": "completed"}
    assert "whole" in logs.shown("b")[0]
    assert [event.status for event in logs.of("a", "cell_ended")] == ["interrupted"]


async def test_waiting_for_a_child_does_not_use_the_cells_deadline_up_and_never_raises(home: Path) -> None:
    cell = (
        f"{spawn('a')}\nfirst = await agents.collect([a.agent_id], timeout_s=0.1)\n"
        "then = await agents.collect([a.agent_id])\n"
        "print([r.name for r in first.pending], first.done, [r.name for r in then.done], then.pending)"
    )
    cast = Cast({"go": [{"code": cell}], "a": [{"text": "abcd", "chunk": 1, "delay_s": 1.0}]})
    async with family(home, cast, cell_timeout_s=2) as (agent, logs):
        await agent.ask("go")
    assert "['a'] [] ['a'] []" in logs.shown()[0]


async def test_messages_go_both_ways_and_wake_one_that_has_settled(home: Path) -> None:
    def child(request: Request, number: int) -> Entry:
        said = text_of(request.messages[-1].parts)
        early = {"code": "await agents.send('parent', 'half of it')\nx = 7"}
        return early if number == 0 else {"code": "print(x)"} if said == "more" else {"text": f"after {said[:9]}"}

    cast = Cast(
        {
            "go": [{"code": f"{spawn('a')}\n{collect('a')}"}],
            "again": [{"code": f"await agents.send(a.agent_id, 'more')\n{collect('a')}"}],
            "a": child,
        }
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
        await agent.ask("again")
    assert any("Message of your child a" in event.text for event in logs.of("root", "notice_given"))
    assert logs.settled() == [("a", "completed"), ("a", "completed")]
    assert [event.settlement.activation for event in logs.of("root", "child_settled")] == [1, 2]
    assert len(logs.of("root", "child_woken")) == 1
    assert "7" in logs.shown("a")[-1]  # its variables were saved when it settled
    assert "child" not in logs.shown()[0]


async def test_a_message_joins_the_running_turn_of_a_child(home: Path) -> None:
    cast = Cast(
        {
            "go": [{"code": spawn("a")}],
            "say": [{"code": "await agents.send(a.agent_id, 'psst')"}],
            "a": [{"code": "await asyncio.sleep(1.5)"}, {"text": "ok"}],
        }
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
        await agent.ask("say")
        await agent.done()
    assert [event.kind for event in logs.of("a", "user_said")] == ["ask", "steer"]
    assert ends(logs.of("a", "turn_ended")) == ["completed"]


async def test_children_above_the_limit_wait_and_those_who_wait_for_theirs_take_no_place(home: Path) -> None:
    middle: list[Entry] = [
        {"code": "g = await agents.spawn('leaf', name='leaf')\nr = await agents.collect([g.agent_id])"}
    ]
    names = tuple(f"c{n}" for n in range(4))
    parts: dict[str, Any] = dict.fromkeys(names, middle)
    listed = "print([r.state for r in await agents.list()])"
    cast = Cast({"go": [{"code": f"{spawn(*names)}\n{listed}\n{collect(*names)}"}], **parts, "leaf": []})
    async with family(home, cast, children_running=1) as (agent, logs):
        async with asyncio.timeout(60):
            await agent.ask("go")
    assert "'queued'" in logs.shown()[0]
    assert sorted(logs.settled()) == [(name, "completed") for name in names]
    assert len(Sessions(home).children(logs.root)) == 8


@pytest.mark.parametrize(
    ("options", "cell", "code"),
    [
        ({"children_depth": 0}, spawn("a"), "too_deep"),
        ({"children_total": 1}, spawn("a", "b"), "too_many"),
        ({}, spawn("a", "a"), "bad_arguments"),
        ({}, "await agents.spawn('  ', name='a')", "bad_arguments"),
        ({}, "await agents.spawn('x', name='')", "bad_arguments"),
        ({}, spawn("a", more="tools=['raed']"), "unknown_tool"),
        ({}, spawn("a", more="model='scripted/evil.yaml'"), "bad_model"),
        ({}, spawn("a", more="model='nobody/nothing'"), "bad_model"),
        ({}, "await agents.send('nobody', 'x')", "not_found"),
        ({}, "await agents.send('parent', 'x')", "not_found"),
        ({}, "await agents.collect(['nobody'])", "not_found"),
        ({}, "await agents.interrupt('nobody')", "not_found"),
    ],
)
async def test_a_wrong_call_is_a_catchable_error(home: Path, options: dict[str, Any], cell: str, code: str) -> None:
    body = cell.replace("\n", "\n    ")
    cast = Cast({"go": [{"code": f"try:\n    {body}\nexcept ToolCallError as error:\n    print(error.code)"}], "a": []})
    async with family(home, cast, **options) as (agent, logs):
        await agent.ask("go")
        await agent.done()
    assert logs.shown()[0].startswith(code)


async def test_a_family_that_has_used_its_tokens_up_stops_and_says_so(home: Path) -> None:
    cells = [{"code": "1", "usage": {"input": 600}}] * 9
    cast = Cast({"go": [{"code": f"{spawn('a')}\n{collect('a')}"}, {"code": spawn("b")}], "a": cells})
    async with family(home, cast, children_tokens=1_000) as (agent, logs):
        answer = await agent.ask("go")
        assert answer.reason == "completed"  # the root goes on
    assert logs.settled() == [("a", "budget")]
    assert "the children used 1,200 new tokens, 1,000 are allowed" in logs.shown()[1]


async def test_the_roots_budget_is_that_of_the_whole_family(home: Path) -> None:
    cast = Cast({"go": [{"code": f"{spawn('a')}\n{collect('a')}"}], "a": [{"text": "x", "usage": {"input": 10**9}}]})
    cast.model = "deepseek/deepseek-chat"
    async with family(home, cast, budget=1.0) as (agent, logs):
        answer = await agent.ask("go")
    assert answer.reason == "max_cost"
    assert logs.settled() == [("a", "completed")]


async def test_a_child_may_call_what_it_was_given_and_hands_no_more_on(home: Path) -> None:
    tries = (
        "for call in (tools.read, tools.bash):\n    try:\n        await call('x')\n    except ToolCallError as error:\n"
        "        print(error.code)"
    )
    given = spawn("a", more="tools=['read']") + "\n"
    grand = "g = await agents.spawn('leaf', name='leaf')\nr = await agents.collect([g.agent_id])"
    cast = Cast(
        {
            "go": [{"code": given + collect("a")}],
            "a": [{"code": tries}, {"code": grand}],
            "leaf": [{"code": tries}],
        }
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    assert logs.shown("a")[0].startswith("not_found\nnot_allowed\n")
    assert logs.shown("leaf")[0].startswith("not_found\nnot_allowed\n")
    refused = [event.error.message for event in logs.of("a", "dispatch_ended") if event.error]
    assert "tools.bash was not given to this agent, which may call: tools.read" in refused


async def test_a_child_that_fails_at_any_step_is_told_of_once_with_the_cause(home: Path) -> None:
    broken: Entry = {"error": {"code": "auth", "message": "no such key"}}
    parts: dict[str, Any] = {f"c{step}": [*[{"code": "1"}] * step, broken] for step in range(3)}
    cast = Cast({"go": [{"code": spawn(*parts)}], **parts})
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
        await agent.done()
    assert sorted(logs.settled()) == [(name, "failed") for name in parts]
    assert all("auth: no such key" in notice for notice in logs.notices())
    assert len(logs.notices()) == 3


async def test_closing_the_parent_stops_its_children_and_theirs_and_reports_each_once(home: Path) -> None:
    cast = Cast(
        {
            "go": [{"code": spawn("a", "b")}],
            "a": [{"code": spawn("leaf")}, {"code": collect("leaf")}],
            "leaf": [HANG],
            "b": [{"text": "b"}],
        }
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
        await cast.asked("leaf")
        await logged(agent, logs, "child_settled", 1)
    assert sorted(logs.settled()) == [("a", "cancelled"), ("b", "completed")]
    assert logs.settled("a") == [("leaf", "cancelled")]
    async with family(home, cast, session=logs.root) as (again, logs):
        assert (await again.ask("go on")).reason == "completed"
    assert sorted(logs.settled()) == [("a", "cancelled"), ("b", "completed")]
    assert sum("child a " in notice for notice in logs.notices()) == 1


async def test_a_queued_child_that_is_interrupted_never_starts(home: Path) -> None:
    cell = f"{spawn('a', 'b')}\nb = await agents.interrupt(b.agent_id)\nprint(b.state, b.outcome)"
    cast = Cast({"go": [{"code": cell}], "a": [{"text": "abcdef", "chunk": 1, "delay_s": 0.1}], "b": []})
    async with family(home, cast, children_running=1) as (agent, logs):
        await agent.ask("go")
        await agent.done()
    assert "settled cancelled" in logs.shown()[0]
    assert dict(logs.settled()) == {"a": "completed", "b": "cancelled"}
    assert cast.seen("b") == []


async def test_descendants_are_listed_and_running_children_are_in_the_directory(home: Path) -> None:
    middle = [{"code": "g = await agents.spawn('leaf', name='leaf')\nr = await agents.collect([g.agent_id])"}]
    look = f"{spawn('a')}\n{collect('a')}\nprint([r.name for r in await agents.list('descendants')])"
    cast = Cast({"go": [{"code": look}], "a": middle, "leaf": []})
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    assert "['a', 'leaf']" in logs.shown()[0]


async def test_a_settlement_names_the_jobs_that_end_with_the_child(home: Path) -> None:
    cast = Cast(
        {"go": [{"code": f"{spawn('a')}\n{collect('a')}"}], "a": [{"code": "await jobs.start('sleep 60', name='nap')"}]}
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    (told,) = logs.of("root", "child_settled")
    assert told.settlement.detail.startswith("ended with it: ")
    assert "nap" in told.settlement.detail


async def test_a_child_whose_session_was_deleted_is_not_started_again(home: Path) -> None:
    cast = Cast({"go": [{"code": f"{spawn('a')}\n{collect('a')}"}], "a": []})
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    Sessions(home).delete(logs.ids()["a"])
    tell = "try:\n    await agents.send(a.agent_id, 'x')\nexcept ToolCallError as error:\n    print(error.code)"
    cast = Cast({"tell": [{"code": tell}], "a": []})
    async with family(home, cast, session=logs.root) as (agent, logs):
        await agent.ask("tell")
        await agent.done()
    assert "\nnot_delivered\n" in logs.shown()[-1]
    assert logs.settled() == [("a", "completed")]
    assert cast.seen("a") == []


async def test_a_session_is_deleted_with_its_children(home: Path) -> None:
    cast = Cast({"go": [{"code": f"{spawn('a')}\n{collect('a')}"}], "a": []})
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    sessions = Sessions(home)
    child = logs.ids()["a"]
    assert sessions.resolve(child) == child
    sessions.delete(logs.root)
    assert sessions.children(logs.root) == []
    with pytest.raises(SessionNotFound):
        sessions.resolve(child)


async def test_a_recorded_family_is_replayed_without_a_model(home: Path) -> None:
    cast = Cast(
        {"go": [{"code": spawn("a", "b")}, {"code": collect("a", "b")}], "a": [{"text": "A"}], "b": [{"text": "B"}]}
    )
    async with family(home, cast) as (agent, logs):
        await agent.ask("go")
    async with prime.Agent(f"replay/{logs.root}", cwd=home, home=home) as replayed:
        await replayed.ask("go")
        again = Logs(home, replayed.session)
    assert again.shown()[1].splitlines()[0] == logs.shown()[1].splitlines()[0]

"""The policy ``stream``: rules asked for once, a constitution that stays, writes held against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import prime
from prime import events as ev
from prime.log import Log, read
from prime.messages import Request, text_of
from prime.pinned import PINNED_CHARS
from prime.policies.base import Options, StreamOptions
from prime.policies.stream import SYSTEM
from prime.policies.window import KEPT
from prime.projection import NOTICE
from prime.providers.scripted import ScriptedProvider
from prime.replayed import recorded, replay
from prime.sessions import Sessions
from prime.side import CONSTITUTION, RULES, SUSPENDED
from prime.testing import ScriptedCell, Stage, scripted
from prime.verify import verify

pytestmark = pytest.mark.anyio

STREAM = Options(policy="stream")
#: Steps of a turn that writes at step 8 and later, in which rules hold.
QUIET = ["read spec.md"] + ["1"] * 6
ENTRY = "A report is named report-NUMBER.md."


def checked(kind: str, **fields: Any) -> str:
    return json.dumps({"rule": f"the rule {kind}", "check": {"kind": kind, **fields}})


class Model:
    """Asks for the given cells, one a step, then says that it is done; answers side calls with ``rules``."""

    def __init__(self, cells: list[str], rules: str | Mapping[str, Any] = ENTRY) -> None:
        self.cells = [*cells]
        self.rules = rules
        self.asides: list[Request] = []
        self.steps: list[Request] = []
        self.provider = ScriptedProvider(self.compose)

    def compose(self, request: Request) -> Mapping[str, Any]:
        if request.header.system == SYSTEM:
            self.asides.append(request)
            return {"text": self.rules} if isinstance(self.rules, str) else self.rules
        self.steps.append(request)
        return {"code": self.cells.pop(0)} if self.cells else {"text": "done"}


async def play(code: str, cell: ScriptedCell) -> object:
    """A cell is ``read PATH``, ``write PATH TEXT``, ``edit PATH OLD NEW``, ``patch LINE PATHS``, ``new`` or nothing."""
    word, *given = code.split(" ", 3 if code.startswith("edit") else 2)
    if word == "read":
        return (await cell.call("tools.read", path=given[0]))["text"]
    if word == "write":
        await cell.call("tools.write", path=given[0], content=given[1])
    if word == "edit":
        await cell.call("tools.edit", path=given[0], old=given[1], new=given[2])
    if word == "patch":
        files = "".join(f"*** Add File: {name}\n+{given[0]}\n" for name in given[1].split())
        await cell.call("tools.apply_patch", patch=f"*** Begin Patch\n{files}*** End Patch\n")
    if word == "new":
        await cell.call("context.new")
    return None


def of(log: Log, *types: str) -> list[Any]:
    return [entry.event for entry in log.entries(types=types)]


def notices(log: Log, about: str) -> list[str]:
    return [event.text for event in of(log, "notice_given") if event.about == about]


@pytest.fixture
def spec(home: Path) -> Path:
    (home / "spec.md").write_text(f"# Spec\n{ENTRY}\n")
    return home


async def run(home: Path, model: Model, options: Options = STREAM, words: str = "write the reports") -> Stage:
    async with scripted(model.provider, play, home=home, options=options) as stage:
        assert (await stage.agent.ask(words)).text == "done"
        return stage


def begins(request: Request, earlier: Request) -> bool:
    return request.messages[: len(earlier.messages)] == earlier.messages and request.header == earlier.header


async def test_rules_are_asked_for_once_at_the_third_step(spec: Path) -> None:
    model = Model(["read spec.md", "1", "2", "3"])
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        await stage.agent.ask("write the reports")
        (asked,) = model.asides
        assert model.provider.requests.index(asked) == 2
        shown = text_of(asked.messages[0].parts)
        assert shown == f"## Request\nwrite the reports\n\n## File spec.md\n# Spec\n{ENTRY}"
        assert asked.header.tools == ()
        assert asked.header.parameters.effort is None
        (event,) = of(stage.log, "query_asked")
        assert event.about == RULES
        assert verify(stage.log.store).requests == 6


async def test_the_constitution_is_given_once_and_nothing_before_it_changes(spec: Path) -> None:
    model = Model(["read spec.md", "1", "2", "3"], json.dumps({"rule": ENTRY}))
    stage = await run(spec, model)
    (given,) = notices_of(spec, stage, CONSTITUTION)
    assert "## Request\nwrite the reports" in given
    assert f"## File spec.md\n# Spec\n{ENTRY}" in given
    assert f"## Rules\n1. {ENTRY}" in given
    first, second, *later = model.steps
    assert begins(second, first)
    assert text_of(later[0].messages[-1].parts) == NOTICE + given
    for before, after in zip(model.steps, model.steps[1:], strict=False):
        assert begins(after, before)


def entries(home: Path, stage: Stage) -> list[ev.Entry]:
    with Sessions(home).read(stage.log.session) as store:
        return list(read(store))


def notices_of(home: Path, stage: Stage, about: str) -> list[str]:
    found = [entry.event for entry in entries(home, stage)]
    return [event.text for event in found if isinstance(event, ev.NoticeGiven) and event.about == about]


async def test_it_is_off_by_default(spec: Path) -> None:
    rules = checked("must_contain", text="Number:")
    model = Model([*QUIET, "write a.md nothing"], rules)
    stage = await run(spec, model, Options())
    assert model.asides == []
    assert (spec / "a.md").read_text() == "nothing"
    assert notices_of(spec, stage, CONSTITUTION) == []


async def test_each_turn_has_a_constitution_of_its_own_and_that_of_the_last_one_is_sealed(spec: Path) -> None:
    (spec / "spec.md").write_text(f"{ENTRY}\n" * 200)  # an entry is made of a turn only if that is smaller
    model = Model(["read spec.md", "1", "2", "3"])
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        await stage.agent.ask("write the first")
        model.cells = ["1", "2", "3"]
        await stage.agent.ask("write the second")
        assert len(model.asides) == 2
        assert len(notices(stage.log, CONSTITUTION)) == 2
        shown = [text_of(each.parts) for each in model.steps[-1].messages]
        held = [text for text in shown if text.startswith(f"{NOTICE}The constitution")]
        assert len(held) == 1
        assert "write the second" in held[0]
        assert "spec.md" not in held[0]


async def test_only_files_of_the_first_steps_are_pinned(spec: Path) -> None:
    (spec / "late.md").write_text("late")
    model = Model(["1", "2", "read late.md", "3"])
    options = Options(policy="stream", stream=StreamOptions(extract_step=4, pin_steps=2))
    await run(spec, model, options)
    (asked,) = model.asides
    assert model.provider.requests.index(asked) == 3
    assert text_of(asked.messages[0].parts) == "## Request\nwrite the reports"


async def test_what_is_pinned_is_bounded(spec: Path) -> None:
    (spec / "large.txt").write_text("word " * 20_000)
    model = Model(["read large.txt", "1", "2"])
    await run(spec, model)
    shown = text_of(model.asides[0].messages[0].parts)
    assert len(shown) < PINNED_CHARS + 300
    assert "more characters are left out; `await history.expand(seq=" in shown


async def test_usage_of_the_side_call_counts_once(spec: Path) -> None:
    model = Model(["read spec.md", "1", "2"], {"text": ENTRY, "usage": {"input": 1_000_000, "output": 7}})
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        answer = await stage.agent.ask("write the reports")
        assert 1_000_000 <= answer.usage.prompt < 1_100_000
        (total,) = stage.log.state.usage.values()
        assert total == answer.usage
        # it is not taken for the size of the conversation
        assert stage.loop.context.used() < 100_000


async def test_a_side_call_that_fails_does_not_fail_the_turn(spec: Path) -> None:
    model = Model(["read spec.md", "1", "2"], {"error": {"code": "bad_request", "message": "not like this"}})
    stage = await run(spec, model)
    (given,) = notices_of(spec, stage, CONSTITUTION)
    assert "They could not be extracted (bad_request: not like this)" in given
    assert ENTRY in given
    assert len(model.asides) == 1


async def test_an_answer_without_rules_says_so(spec: Path) -> None:
    stage = await run(spec, Model(["read spec.md", "1", "2"], "..."))
    assert "None were found" in notices_of(spec, stage, CONSTITUTION)[0]


async def test_a_turn_can_be_cancelled_during_the_side_call(spec: Path) -> None:
    model = Model(["read spec.md", "1", "2"], {"text": "half an ", "hang": True})
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        asked = asyncio.Event()
        stage.log.observe(lambda entry: asked.set() if isinstance(entry.event, ev.QueryAsked) else None)
        turn = asyncio.create_task(stage.agent.ask("write the reports"))
        await asked.wait()
        stage.agent.interrupt()
        assert (await turn).reason == "cancelled"
        (ended,) = of(stage.log, "query_ended")
        assert ended.error.code == "cancelled"
        assert len(of(stage.log, "step_started")) == 2  # the third would be for nobody
        assert notices(stage.log, CONSTITUTION) == []
        model.cells, model.rules = ["1", "2"], ENTRY
        assert (await stage.agent.ask("go on")).text == "done"
        assert len(notices(stage.log, CONSTITUTION)) == 1


@pytest.mark.parametrize("answered", [True, False])
async def test_a_process_killed_after_the_answer_neither_asks_again_nor_loses_it(spec: Path, answered: bool) -> None:
    """What a killed process leaves is a log that ends there."""
    model = Model(["read spec.md", "1", "2"])
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        await stage.agent.ask("write the reports")
    whole = entries(spec, stage)
    last = next(e.seq for e in whole if isinstance(e.event, ev.QueryEnded if answered else ev.QueryAsked))
    with Sessions(spec).create(spec) as log:
        for entry in whole[1 : last + 1]:
            if isinstance(entry.event, ev.InputClaimed):
                claim = entry.event
            elif isinstance(entry.event, ev.UserSaid):
                log.append(claim, entry.event)
            else:
                log.append(entry.event)
        session = log.session
    model.asides.clear()
    model.cells = ["1", "2", "3"]
    async with scripted(model.provider, play, home=spec, options=STREAM, session=session) as stage:
        assert (await stage.agent.ask("go on")).text == "done"
        (given,) = notices(stage.log, CONSTITUTION)
        if answered:
            assert model.asides == []
            assert "(in turn 1, which was cut off)" in given
            assert ENTRY in given
        else:  # whether it was answered is not known; the turn is another one
            (ended, _) = of(stage.log, "query_ended")
            assert ended.error.code == "outcome_unknown"
            assert len(model.asides) == 1
            assert "## Request\ngo on" in given


async def test_a_new_window_is_not_had_while_the_turn_runs(spec: Path) -> None:
    (spec / "code.py").write_text("def f(x):\n    return x + 1\n" * 400)  # more than a directory of it
    stage = await run(spec, Model(["read code.py", "new", "1", "2"]))
    assert len(notices_of(spec, stage, KEPT)) == 1
    made = [entry.event for entry in entries(spec, stage) if isinstance(entry.event, ev.SurfaceReplaced)]
    assert [event.policy for event in made] == ["fold"]


async def test_a_request_too_large_for_the_provider_is_still_made_small(spec: Path) -> None:
    (spec / "code.py").write_text("def f(x):\n    return x + 1\n" * 400)
    model = Model(["read code.py", "1", "2"])
    say, refused = model.compose, []

    def compose(request: Request) -> Mapping[str, Any]:
        if len(model.steps) == 3 and not refused:
            refused.append(request)
            return {"error": {"code": "overflow"}}
        return say(request)

    model.provider = ScriptedProvider(compose)
    async with scripted(model.provider, play, home=spec, options=STREAM) as stage:
        answer = await stage.agent.ask("write the reports")
        assert answer.reason == "completed"
        assert of(stage.log, "surface_replaced") != []


KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "file_name": ({"pattern": "^report-[0-9]+\\.md$"}, "write notes.md x", "write report-1.md x"),
    "must_contain": ({"text": "Number: 1"}, "write a.md Number: 2", "write a.md Number: 1"),
    "must_not_contain": ({"text": "TODO"}, "write a.md a TODO", "write a.md all done"),
    "max_line_length": ({"max": 10}, "write a.md 12345678901", "write a.md 1234567890"),
    "line_matches": ({"pattern": "^[a-z]+,", "lines": "every"}, "write a.csv a,1\nB,2", "write a.csv a,1\nb,2\n"),
    "field_enum": (
        {"field": "status", "values": ["open", "done"]},
        "write a.yml id: 1\nstatus: lost",
        "write a.yml id: 1\nstatus: done",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_write_that_breaks_a_rule_fails_and_one_that_keeps_it_is_made(spec: Path, kind: str) -> None:
    fields, wrong, right = KINDS[kind]
    stage = await run(spec, Model([*QUIET, wrong, right], checked(kind, **fields)))
    (broken,) = [entry.event for entry in entries(spec, stage) if isinstance(entry.event, ev.ContractBroken)]
    ended = [entry.event for entry in entries(spec, stage) if isinstance(entry.event, ev.DispatchEnded)]
    assert [event.error.code for event in ended if event.error] == ["contract"]
    message = next(event.error.message for event in ended if event.error)
    assert "was not written" in message
    assert f"rule 1 of the constitution (the rule {kind})" in message
    assert not broken.suspended
    path, text = right.split(" ", 2)[1:]
    assert (spec / path).read_text() == text
    if wrong.split(" ")[1] != path:
        assert not (spec / wrong.split(" ")[1]).exists()


async def test_edits_are_held_against_the_rules_too(spec: Path) -> None:
    (spec / "a.md").write_text("all done")
    rules = checked("must_not_contain", text="TODO")
    stage = await run(spec, Model([*QUIET, "read a.md", "edit a.md done TODO", "edit a.md done fine"], rules))
    assert (spec / "a.md").read_text() == "all fine"
    assert len([entry for entry in entries(spec, stage) if isinstance(entry.event, ev.ContractBroken)]) == 1


async def test_of_a_patch_that_breaks_a_rule_in_one_file_nothing_is_written(spec: Path) -> None:
    rules = checked("must_not_contain", glob="b.md", text="TODO")
    stage = await run(spec, Model([*QUIET, "patch TODO a.md b.md", "patch fine b.md"], rules))
    assert not (spec / "a.md").exists()
    assert (spec / "b.md").read_text() == "fine\n"
    assert len([entry for entry in entries(spec, stage) if isinstance(entry.event, ev.ContractBroken)]) == 1


async def test_rules_hold_from_the_eighth_step_on(spec: Path) -> None:
    rules = checked("must_contain", text="Number:")
    early = [*QUIET[:-1], "write early.md nothing", "write late.md nothing"]
    await run(spec, Model(early, rules))
    assert (spec / "early.md").exists()
    assert not (spec / "late.md").exists()


async def test_the_second_violation_suspends_the_rule_and_the_write_is_made(spec: Path) -> None:
    rules = f"{checked('must_contain', text='Number:')}\n{checked('max_line_length', max=5)}"
    writes = ["write a.md nothing", "write a.md nothing", "write b.md no"]
    model = Model([*QUIET, *writes, "write c.md Number: 1"], rules)
    stage = await run(spec, model)
    assert (spec / "a.md").read_text() == "nothing"
    assert (spec / "b.md").exists()
    assert (spec / "c.md").exists()
    broken = [entry.event for entry in entries(spec, stage) if isinstance(entry.event, ev.ContractBroken)]
    assert [(event.rule, event.suspended) for event in broken] == [(1, False), (2, False), (1, True), (2, True)]
    (told,) = notices_of(spec, stage, SUSPENDED)
    assert "- rule 1, by a.md: it does not contain 'Number:'" in told
    assert "- rule 2, by a.md" in told
    # it is told once, before the next step
    assert text_of(model.steps[9].messages[-1].parts) == NOTICE + told


async def test_the_budget_is_a_setting(spec: Path) -> None:
    rules = checked("must_contain", text="Number:")
    options = Options(policy="stream", stream=StreamOptions(bounce_budget=0, enforce_step=4))
    stage = await run(spec, Model(["read spec.md", "1", "2", "write a.md nothing"], rules), options)
    assert (spec / "a.md").exists()
    assert len(notices_of(spec, stage, SUSPENDED)) == 1


async def test_rules_end_with_their_turn(spec: Path) -> None:
    model = Model(QUIET, checked("must_contain", text="Number:"))
    options = Options(policy="stream", stream=StreamOptions(enforce_step=1))
    async with scripted(model.provider, play, home=spec, options=options) as stage:
        await stage.agent.ask("write the reports")
        model.cells = ["write a.md nothing"]
        await stage.agent.ask("and now something else")
        assert (spec / "a.md").exists()


async def test_a_check_that_is_too_slow_is_suspended_and_does_not_hang_the_host(spec: Path) -> None:
    rules = checked("line_matches", pattern="(a|aa)+$", lines="any")
    stage = await run(spec, Model([*QUIET, f"write a.md {'a' * 5_000}b"], rules))
    assert (spec / "a.md").exists()
    (broken,) = [entry.event for entry in entries(spec, stage) if isinstance(entry.event, ev.ContractBroken)]
    assert broken.suspended
    assert "took longer than" in broken.found


async def test_a_broken_check_leaves_its_rule_in_words(spec: Path) -> None:
    rules = f"{checked('max_line_length', max=-1)}\nnot JSON at all"
    stage = await run(spec, Model([*QUIET, "write a.md nothing"], rules))
    (given,) = notices_of(spec, stage, CONSTITUTION)
    assert given.endswith("## Rules\n1. the rule max_line_length\n2. not JSON at all")
    assert (spec / "a.md").exists()


async def test_a_recorded_session_is_priced_without_a_model(spec: Path) -> None:
    rules = checked("must_contain", text="Number:")
    writes = ["write a.md nothing", "write a.md nothing"]
    model = Model([*QUIET, *writes], rules)
    stage = await run(spec, model)
    with Sessions(spec).read(stage.log.session) as store:
        again = replay(store, STREAM, None)
        assert again.same
        lines = recorded(store).lines
        assert [line.prompt for line in again.ledger.lines] == [line.prompt for line in lines]
        assert len(lines) == len(model.provider.requests) == 11
        other = replay(store, Options(policy="fold"), None)
        assert not other.same
        assert len(other.ledger.lines) == 10


async def test_another_session_is_priced_as_if_the_question_had_failed(spec: Path) -> None:
    stage = await run(spec, Model(["read spec.md", "1", "2"]), Options(policy="fold"))
    with Sessions(spec).read(stage.log.session) as store:
        again = replay(store, STREAM, None)
        assert not again.same
        assert len(again.ledger.lines) == 5
        assert again.ledger.lines[2].output == 0


WRITE = "await tools.write('out/{name}', 'Number: {number}\\n')"


async def test_over_a_real_kernel(spec: Path) -> None:
    cells = ["spec = await tools.read('spec.md')\nprint(spec.text)", *["1"] * 6]
    cells += [WRITE.format(name="notes.md", number=1), WRITE.format(name="report-1.md", number=1)]
    model = Model(cells, checked("file_name", glob="out/*", pattern="^report-[0-9]+\\.md$"))
    async with prime.Agent(model.provider, context_policy="stream", home=spec, cwd=spec) as agent:
        assert (await agent.ask("write the reports")).text == "done"
        assert len(model.asides) == 1
    assert not (spec / "out" / "notes.md").exists()
    assert (spec / "out" / "report-1.md").read_text() == "Number: 1\n"
    shown = "\n".join(text_of(each.parts) for each in model.steps[-1].messages)
    assert "the name 'notes.md' does not match" in shown

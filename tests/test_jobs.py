"""Jobs: real processes beside the cells, over the real loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from watch import happened, of, until

from prime import app, guest
from prime.config import Config
from prime.errors import ToolFailed
from prime.jobs.commands import Jobs
from prime.jobs.job import Pace
from prime.jobs.numbers import ACTIVE, Numbers
from prime.log import Log
from prime.messages import text_of
from prime.sessions import Sessions
from prime.testing import ScriptedCell, scripted
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

QUICK = Pace(gather_s=0.05, gap_s=0.1)


def once(name: str) -> str:
    """A command that waits for a file of that name."""
    return f"while [ ! -e {name} ]; do sleep 0.02; done"


class Place:
    """A session with jobs, called as cells do: through the tools."""

    def __init__(self, log: Log, jobs: Jobs, workspace: Workspace) -> None:
        self.log = log
        self.workspace = workspace
        self._tools = {tool.target: tool for tool in jobs.tools()}

    async def call(self, target: str, *args: Any, **arguments: Any) -> Any:
        tool = self._tools[f"jobs.{target}"]
        named = dict(zip((each.name for each in tool.binding().parameters), args, strict=False))
        full = tool.validate({**named, **arguments})
        value = await tool.run(self.workspace, full)
        assert tool.for_model(full, value)
        assert "\n" not in tool.for_human(full, value)
        return value

    def notices(self) -> list[str]:
        return [text_of(item.parts) for item in self.log.state.inbox.pending]


@contextlib.asynccontextmanager
async def opened(home: Path, session: str | None = None) -> AsyncIterator[Place]:
    sessions = Sessions(home)
    with sessions.open(session) if session else sessions.create(home) as log:
        async with Jobs(log, Numbers(log), sessions.folder(log.session) / "jobs", QUICK) as jobs:
            yield Place(log, jobs, Workspace(home, guest.environment(os.environ)))


@pytest.fixture
async def place(home: Path) -> AsyncIterator[Place]:
    async with opened(home) as found:
        yield found


async def refusal(place: Place, target: str, *args: Any, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await place.call(target, *args, **arguments)
    return f"{caught.value.code}: {caught.value}"


async def test_a_job_runs_beside_and_its_output_comes_in_parts(place: Place) -> None:
    assert await place.call("list") == {"jobs": []}
    begun = await place.call("start", f"echo one; {once('go')}; echo two; echo err >&2; exit 3", name="say")
    assert (begun["job_id"], begun["name"]) == (1, "say")
    (started,) = of(place.log, "job_started")
    assert (started.pid, started.cwd, started.kind) == (begun["pid"], str(place.workspace.cwd), "command")
    first = await place.call("output", 1, 10, until="output")
    assert (first["text"], first["state"], first["more"]) == ("one\n", "running", False)
    (place.workspace.cwd / "go").touch()
    second = await place.call("output", 1, wait_s=10)
    assert second["text"] == "two\nerr\n"
    assert (second["state"], second["exit_code"], second["signal"], second["offset"]) == ("exited", 3, None, 4)
    assert (await place.call("output", 1))["text"] == ""
    assert (await place.call("output", 1, offset=-4, limit=16))["text"] == "err\n"
    (job,) = (await place.call("list"))["jobs"]
    assert (job["state"], job["output_bytes"], job["unread"]) == ("exited", 12, 0)


async def test_parts_do_not_cut_characters(place: Place) -> None:
    await place.call("start", "printf 'äöü€😀%.0s' 1 2 3 4 5 6 7 8 9; printf '\\xff'")
    found, part = "", await place.call("output", 1, 10, limit=16)
    while part["text"]:
        found, part = found + part["text"], await place.call("output", 1, limit=16)
    assert found == "äöü€😀" * 9 + "\N{REPLACEMENT CHARACTER}"


async def test_the_end_is_told_once_unless_it_was_read(place: Place) -> None:
    await place.call("start", "exit 1", name="quick")
    await happened(place.log, "job_ended")
    (told,) = place.notices()
    assert "job 1 (quick) has ended: exit code 1" in told
    assert place.log.state.inbox.pending[0].wake
    assert (await place.call("output", 1))["exit_code"] == 1
    assert place.notices() == []
    # who waits for the end is told by that alone
    await place.call("start", "sleep 0.2")
    assert (await place.call("output", 2, wait_s=10))["state"] == "exited"
    assert [event.kind for event in of(place.log, "input_queued")] == ["notice"]


async def test_the_end_is_told_when_the_waiting_was_given_up(place: Place) -> None:
    await place.call("start", once("go"))
    waiting = asyncio.create_task(place.call("output", 1, wait_s=60))

    def give_up(entry: Any) -> None:
        if entry.event.type == "job_ended":
            waiting.cancel()

    place.log.observe(give_up)
    await asyncio.sleep(0.01)
    (place.workspace.cwd / "go").touch()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(place.notices()) == 1


async def test_killing_ends_the_whole_group_and_is_not_told(place: Place) -> None:
    await place.call("start", "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000")
    inner = int((await place.call("output", 1, 10, until="output"))["text"])
    killed = await place.call("kill", 1)
    assert (killed["state"], killed["signal"]) == ("killed", "SIGKILL")
    assert not psutil.pid_exists(inner) or psutil.Process(inner).status() == psutil.STATUS_ZOMBIE
    assert place.notices() == []
    assert (await place.call("kill", 1))["state"] == "killed"


async def test_killing_asks_first(place: Place) -> None:
    await place.call("start", "trap 'echo bye; exit 7' TERM; echo ready; while true; do sleep 0.05; done")
    await place.call("output", 1, 10, until="output")
    killed = await place.call("kill", 1)
    assert (killed["state"], killed["exit_code"]) == ("killed", 7)
    assert (await place.call("output", 1))["text"].endswith("bye\n")


async def test_what_has_left_the_group_does_not_hold_the_end_of_a_killed_job_back(place: Place) -> None:
    await place.call("start", "setsid sleep 30 & echo $!; sleep 1000")
    left = int((await place.call("output", 1, 10, until="output"))["text"])
    assert (await place.call("kill", 1))["state"] == "killed"
    psutil.Process(left).kill()


async def test_a_job_lasts_as_long_as_something_writes_to_its_output(place: Place) -> None:
    await place.call("start", "(sleep 0.3; echo late) & exit 4")
    part = await place.call("output", 1, wait_s=10)
    assert (part["text"], part["exit_code"]) == ("late\n", 4)


async def test_lines_that_are_watched_for_are_told_together_and_the_rest_with_the_end(place: Place) -> None:
    command = f"{once('go')}; printf 'fine\\nerror 1\\nerror 2\\n'; {once('on')}; echo error 3; echo error last"
    await place.call("start", command, name="build")
    await place.call("watch", 1, "error")
    (place.workspace.cwd / "go").touch()
    await happened(place.log, "input_queued")
    (told,) = place.notices()
    assert told.startswith("job 1 (build) has written lines")
    assert told.endswith("\nerror 1\nerror 2")
    (place.workspace.cwd / "on").touch()
    await happened(place.log, "job_ended")
    *_, told = place.notices()
    assert "has ended: exit code 0" in told
    assert told.endswith("\nerror 3\nerror last")


async def test_no_second_notice_before_the_first_was_taken_and_none_over_the_most(place: Place) -> None:
    await place.call("start", "i=0; while true; do echo tick $((i++)); sleep 0.01; done")
    await place.call("watch", 1, most=2)
    await happened(place.log, "input_queued")
    await asyncio.sleep(0.4)
    assert len(place.notices()) == 1
    await place.call("output", 1)  # it is taken back, and the next one comes
    await happened(place.log, "input_queued", 2)
    assert "last notice" in place.notices()[0]
    await place.call("output", 1)
    await asyncio.sleep(0.4)
    assert place.notices() == []


async def test_a_watch_takes_the_place_of_the_earlier_one(place: Place) -> None:
    await place.call("start", f"{once('go')}; echo one; echo two; {once('on')}; echo two")
    await place.call("watch", 1, "one")
    await place.call("watch", 1, "two", from_start=True)
    (place.workspace.cwd / "go").touch()
    await happened(place.log, "input_queued")
    assert place.notices()[0].endswith("\ntwo")
    await place.call("watch", 1, most=0)
    (place.workspace.cwd / "on").touch()
    await happened(place.log, "job_ended")
    assert not place.notices()[-1].endswith("two")
    assert (await refusal(place, "watch", 1)).startswith("not_running: ")


async def test_what_is_no_job_is_refused(place: Place) -> None:
    assert (await refusal(place, "output", 1)).startswith("not_found: ")
    assert (await refusal(place, "start", "true", cwd="nowhere")).startswith("not_found: ")
    assert (await refusal(place, "start", "echo \0")).startswith("bad_arguments: ")
    assert of(place.log, "job_started") == []
    assert (await place.call("start", "true"))["job_id"] == 1
    assert (await refusal(place, "watch", 1, "(")).startswith("bad_arguments: ")


async def test_so_many_run_at_a_time(place: Place) -> None:
    await asyncio.gather(*(place.call("start", "exec sleep 100") for _ in range(ACTIVE)))
    assert (await refusal(place, "start", "true")).startswith("too_many: ")
    await place.call("kill", 7)
    assert (await place.call("start", "true"))["job_id"] == ACTIVE + 1


async def test_jobs_end_with_the_session_which_is_told_when_it_goes_on(home: Path) -> None:
    async with opened(home) as place:
        begun = await place.call("start", "echo here; sleep 1000", name="server")
        await place.call("output", 1, 10, until="output")
    assert not psutil.pid_exists(begun["pid"])
    async with opened(home, place.log.session) as again:
        (told,) = again.log.state.inbox.pending
        assert "because the session was closed" in text_of(told.parts)
        assert not told.wake
        part = await again.call("output", 1)
        assert (part["text"], part["state"]) == ("here\n", "closed")
        assert (await again.call("start", "true"))["job_id"] == 2


async def test_a_job_of_a_host_that_died_is_lost_once(home: Path) -> None:
    async with opened(home) as place:
        await place.call("start", "echo here; sleep 1000", name="server")
        await place.call("output", 1, 10, until="output")
        session = place.log.session
        copied = Sessions(home).folder(session).with_name("copy")
        await (await asyncio.create_subprocess_exec("cp", "-r", Sessions(home).folder(session), copied)).wait()
    for _ in range(2):  # what the disk would have held, had the host died here
        async with opened(home, "copy") as again:
            (told,) = again.log.state.inbox.pending
            assert "job 1 (server) was lost" in text_of(told.parts)
            (job,) = (await again.call("list"))["jobs"]
            assert (job["state"], job["output_bytes"], job["duration_s"]) == ("lost", 5, None)
    async with opened(home, "copy") as again:
        assert (await again.call("output", 1))["text"] == "here\n"
        assert again.notices() == []


async def test_the_end_of_a_job_wakes_the_agent_and_nothing_does_when_it_was_read(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        if code == "start":
            return await cell.call("jobs.start", command="sleep 0.2; echo built", name="build")
        if code == "wait":
            return await cell.call("jobs.output", job_id=1, wait_s=10)
        return await cell.call("jobs.start", command="true")

    replies = [{"code": "start"}, {"text": "started"}, {"code": "read"}, {"text": "woken"}, {"text": "again"}]
    async with scripted(replies, play, home=home) as stage:
        assert (await stage.agent.ask("build it")).text == "started"
        await happened(stage.log, "turn_ended", 2)
        first, *_ = of(stage.log, "notice_given")
        assert first.about == "jobs.1"
        assert "exit code 0" in first.text
        await until(stage.log, lambda: not stage.log.state.running.alive)
    replies = [{"code": "start"}, {"code": "wait"}, {"text": "done"}]
    async with scripted(replies, play, home=home) as stage:
        assert (await stage.agent.ask("build it")).text == "done"
        await asyncio.sleep(0.05)
        assert of(stage.log, "notice_given") == []
        assert len(of(stage.log, "turn_started")) == 1


async def test_jobs_outlive_cells_and_a_wait_does_not_spend_the_deadline(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home, cell_timeout_s=1.0), tmp_path) as shop:
        cancel = asyncio.Event()
        code = "j = await jobs.start('sleep 2; echo built'); j.job_id"
        assert (await shop.cells.run(code, None, cancel)).status == "ok"
        ended = await shop.cells.run("await jobs.output(j.job_id, wait_s=30)", None, cancel)
        assert ended.status == "ok"
        assert text_of(ended.shown).startswith("built\n[job 1: exit code 0]")
        listed = await shop.cells.run("(await jobs.list()).jobs[0].state", None, cancel)
        assert "exited" in text_of(listed.shown)

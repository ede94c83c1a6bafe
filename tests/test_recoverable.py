"""Nothing of a session is out of reach, whatever its policy has done to the window: the calls are really made."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from command import prime
from hypothesis import given
from logs import fresh_store
from strategies import walks

from prime import events as ev
from prime import recoverable
from prime.log import Log, read
from prime.messages import ImagePart, Message, TextPart
from prime.policies.base import Options
from prime.providers.scripted import ScriptedProvider
from prime.repl.signals import Image
from prime.sessions import Sessions
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio

TURNS = 6
#: What each policy has done to the sessions below.
MADE = {
    "transcript": set(),
    "fold": {"fold"},
    "slice": {"fold", "tape"},
    "window": {"fold", "window"},
    "auto": {"fold", "tape", "window"},
}
#: Turns that each leaves as they are.
KEPT = {"slice": 1, "window": 2, "auto": 2}


def picture(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


async def flood(code: str, cell: ScriptedCell) -> object:
    """Print much, with progress bars and a failing call; write a file and keep what it gave to itself."""
    cell.print("".join(f"step {number} of {code} went well 数据\n" for number in range(400)))
    cell.print("\r 10%\r100%\x1b[31m done\x1b[0m\n")
    for number in range(2 if code in ("cell-2", "cell-4") else 0):  # what shows pictures is not folded
        cell.show("", image=Image("image/png", picture(f"{code} {number}")))
    await cell.call("tools.write", path=f"{code}.txt", content=f"the secret of {code} " * 50)
    await cell.call("tools.read", path=f"{code}.txt")
    if code == "cell-3":
        await cell.call("tools.read", path="nowhere")
    return None


def replies() -> list[dict[str, Any]]:
    return [
        reply
        for number in range(1, TURNS + 1)
        for reply in (
            {"text": f"Let me run {number}.", "code": f"cell-{number}"},
            {"call": {"name": "fly", "arguments": {"to": f"the moon, for the {number}. time"}}},
            {"text": f"{number} is done. " + f"Said at length, {number}. " * 250},
        )
    ]


async def played(home: Path, policy: str, **options: Any) -> str:
    provider = ScriptedProvider(replies(), context_window=13_000)
    chosen = Options(policy=policy, retain=2_000, **options)
    async with scripted(provider, flood, home=home, options=chosen) as stage:
        for number in range(1, TURNS + 1):
            seen = [ImagePart(media_type="image/png", data=picture("by a person"))] if number == 1 else []
            assert (await stage.agent.ask(f"please do number {number}", seen)).reason == "completed"
        return stage.log.session


@pytest.mark.parametrize("policy", ["transcript", "fold", "slice", "window", "auto"])
async def test_every_text_comes_back_under_every_policy(policy: str, home: Path) -> None:
    session = await played(home, policy)
    with Sessions(home).read(session) as store:
        report = await recoverable.check(store)
        made = {entry.event.policy for entry in read(store, types=("surface_replaced",))}
    assert made == MADE[policy]
    assert report.misses == []
    assert report.failed == []
    found = report.whole + report.one + report.two + report.listed
    assert report.originals == found > 6 * TURNS
    if policy in ("slice", "window", "auto"):
        assert report.one > TURNS
        assert report.two >= 2 * TURNS  # what cells were given and kept to themselves
        assert report.listed == KEPT[policy] * 5  # code and two calls of a turn that stays as it is
    else:
        assert report.one >= TURNS


async def test_the_command_says_what_was_found_and_fails_at_a_miss(home: Path) -> None:
    session = await played(home, "slice")
    well = prime(home, "sessions", "verify", session, "--recoverable")
    assert well.returncode == 0, well.stderr
    assert "in the next request" in well.stdout
    assert "calls made" in well.stdout
    with Sessions(home).open(session) as log:  # a window whose words lead nowhere, under a prompt without a listing
        header = log.state.header
        assert header is not None
        log.append(ev.HeaderChanged(header=header.model_copy(update={"system": "You have a kernel."})))
        seqs = log.state.surface.seqs
        message = Message(role="user", parts=(TextPart(text="It is all gone. Try history.turn(99)."),))
        log.append(ev.SurfaceReplaced(start=seqs[0], end=seqs[-1], sources=seqs, message=message, policy="test"))
    ill = prime(home, "sessions", "verify", session, "--recoverable")
    assert ill.returncode == 1
    assert "nothing leads to" in ill.stderr
    assert "a call that the request names fails: history.turn(99): there is no turn 99" in ill.stderr
    assert prime(home, "sessions", "verify", session).returncode == 0


@given(walks())
def test_what_any_log_holds_is_accounted_for(walk: tuple[Any, ...]) -> None:
    with fresh_store() as store, Log(store) as log:
        for commit in walk:
            log.append(*commit)
        report = asyncio.run(recoverable.check(store))
        found = report.whole + report.one + report.two + report.listed
        assert report.originals == found + len(report.misses)
        assert report.listed == 0  # the system prompts of these logs name no listing


def test_where_no_model_was_asked_nothing_has_left(home: Path) -> None:
    assert prime(home, "cell", "-c", "print('by hand')").returncode == 0
    checked = prime(home, "sessions", "verify", "last", "--recoverable")
    assert checked.returncode == 0, checked.stderr
    assert "0 texts and pictures" in checked.stdout

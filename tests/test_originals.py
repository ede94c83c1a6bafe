"""What policies may ask of the log: whole outputs, reads, words of persons, the note."""

from __future__ import annotations

from strategies import cell_ended
from turns import Cell, Step, Turns, session

from prime import events as ev
from prime.messages import CallPart, Message, TextPart
from prime.originals import StoredOriginals
from prime.policies.base import Options

PLAIN = Options(policy="transcript")
FOUND = {"hits": [{"snippet": "s" * 100, "call": "short"}]}


def originals(turns: Turns) -> StoredOriginals:
    return StoredOriginals(turns.log.entries)


def test_an_output_is_whole_and_as_a_terminal_shows_it() -> None:
    with session(PLAIN) as turns:
        turns.begin("go")
        turns.send()
        call = CallPart(call_id="c", name="repl", arguments="{}")
        turns.log.append(ev.ModelReplied(parts=(call,), stop="calls", model="m", usage=None))
        turns.log.append(ev.CellStarted(cell="x", call_id="c", code="1"))
        for number in range(300):  # the start is far back
            turns.log.append(ev.CellOutput(cell="x", stream="stdout", text=f"\r{number}"))
        turns.log.append(ev.CellOutput(cell="older", stream="stdout", text="late", late=True))
        turns.log.append(ev.CellOutput(cell="x", stream="stdout", text="late", late=True))
        turns.log.append(ev.CellOutput(cell="x", stream="result", text="5"))
        turns.log.append(cell_ended("x", "c"))
        output = originals(turns).output(len(turns.log) - 1)
        assert (output.text, output.target, output.called, output.recalled) == ("299\n5", None, (), ())
        turns.log.append(ev.StepEnded(outcome="done"))


def test_the_form_of_a_tool_is_known_when_it_is_all_there_is() -> None:
    with session(PLAIN) as turns:
        alone = Cell("text", target="tools.read", arguments={"path": "a"})
        turns.turn("go", Step("", [alone]))
        seqs = [entry.seq for entry in turns.log.entries(types=("cell_ended",))]
        output = originals(turns).output(seqs[0])
        assert output.target == "tools.read"
        assert output.arguments == {"path": "a"}
        turns.begin("more")
        turns.send()
        call = CallPart(call_id="c", name="repl", arguments="{}")
        turns.log.append(ev.ModelReplied(parts=(call,), stop="calls", model="m", usage=None))
        turns.log.append(ev.CellStarted(cell="x", call_id="c", code="1"))
        for target in ("tools.read", None):
            turns.log.append(ev.CellOutput(cell="x", stream="result", text="1\n", target=target))
        turns.log.append(cell_ended("x", "c"))
        output = originals(turns).output(len(turns.log) - 1)
        assert (output.text, output.target, output.arguments) == ("1\n1\n", None, None)
        turns.log.append(ev.StepEnded(outcome="done"))
        turns.end()


def test_calls_are_named_once_and_what_history_gave_is_known() -> None:
    with session(PLAIN) as turns:
        failed = ("history.turn", {"n": 9}, None)
        calls = [("history.search", {"query": "q"}, FOUND), failed, ("history.search", {"query": "r"}, "z" * 64)]
        turns.turn("go", Step("", [Cell(reads=[("a", "x" * 90, {})], calls=calls)]))
        (result,) = turns.log.entries(types=("cell_ended",))
        output = originals(turns).output(result.seq)
        assert output.called == ("tools.read", "history.search", "history.turn")
        assert output.recalled == ("s" * 100, "z" * 64)
        # numbers of calls count up within a cell: that of the one before is not this one's
        turns.turn("again", Step("", [Cell(calls=[("history.search", {"query": "q"}, "y" * 64)])]))
        *_, result = turns.log.entries(types=("cell_ended",))
        assert originals(turns).output(result.seq).recalled == ("y" * 64,)


def test_a_refused_call_has_its_text() -> None:
    with session(PLAIN) as turns:
        turns.begin("go")
        turns.send()
        call = CallPart(call_id="c", name="fly", arguments="{}")
        turns.log.append(ev.ModelReplied(parts=(call,), stop="calls", model="m", usage=None))
        turns.log.append(ev.CallRefused(call_id="c", name="fly", code="unknown_tool", text="no such tool"))
        turns.log.append(ev.StepEnded(outcome="done"))
        assert originals(turns).output(len(turns.log) - 2).text == "no such tool"


def test_reads_have_their_place_lines_and_an_earlier_turn() -> None:
    with session(PLAIN) as turns:
        picture = ("tools.read", {"path": "p.png"}, {"path": "p.png", "media_type": "image/png", "image": ""})
        turns.turn("1", Step("", [Cell(reads=[("a", "x\ny\n", {})], calls=[picture])]))
        turns.turn("2", Step("", [Cell(reads=[("a", "x\ny\n", {}), ("a", "z\n", {})])]))
        found = originals(turns)
        reads = found.reads(0, len(turns.log))
        assert [(read.turn, read.step, read.lines) for read in reads] == [(1, 1, 2), (2, 1, 2), (2, 1, 1)]
        assert found.read_before(reads[0]) is None
        assert found.read_before(reads[1]) == reads[0]
        assert found.read_before(reads[2]) == reads[0]
        assert found.reads(reads[1].seq, reads[2].seq) == [reads[1]]
        assert found.reads(reads[1].seq, reads[2].seq) == [reads[1]]  # asked again, it is not read again
        assert found.reads(0, reads[1].seq) == reads[:1]
        assert found.reads(0, len(turns.log)) == reads
        turns.turn("3", Step("", [Cell(reads=[("a", "z\n", {}), ("a", "x\ny\n", {"offset": 2})])]))
        latest, window = found.reads(reads[2].seq + 1, len(turns.log))
        assert found.read_before(latest) == reads[2]  # the newest one
        assert found.read_before(window) is None  # other lines are not compared
        assert (latest.window, window.window) == ("default", '{"offset": 2}')


def test_only_the_call_that_reads_files_is_a_read() -> None:
    with session(PLAIN) as turns:
        lookalike = ("tools.lookup", {"path": "a"}, {"path": "a", "text": "x", "line_count": 1})
        turns.turn("1", Step("", [Cell(calls=[lookalike])]))
        assert originals(turns).reads(0, len(turns.log)) == []


def fold(turns: Turns, number: int) -> int:
    """Put a view in the place of result ``number``; return the original's seq."""
    result = [*turns.log.entries(types=("cell_ended",))][number]
    message = Message(role="tool", parts=(TextPart(text="view"),), call_id=result.event.call_id)
    where = {"start": result.seq, "end": result.seq, "sources": (result.seq,)}
    turns.log.append(ev.SurfaceReplaced(**where, message=message, policy="fold", scope="s"))
    return result.seq


def test_what_was_asked_back_counts_once_however_often_it_is_looked_at() -> None:
    with session(PLAIN) as turns:
        turns.turn("1", Step("", [Cell(), Cell()]))
        found = originals(turns)
        for number in range(2):
            seq = fold(turns, number)
            # a slice of it is no expansion
            turns.turn("read", Step("", [Cell(calls=[("history.read", {"seq": seq}, {"seq": seq, "text": "1"})])]))
            assert not found.backed_off("s")
            turns.turn("back", Step("", [Cell(calls=[("history.expand", {"seq": seq}, {"seq": seq, "text": "1"})])]))
            assert [found.backed_off("s"), found.backed_off("s")] == [number == 1] * 2


def test_prompts_and_the_note() -> None:
    with session(PLAIN) as turns:
        assert originals(turns).note() is None
        for number in range(4):
            turns.turn(f"input {number}")
        turns.log.append(ev.NotesWritten(revision=1, text="old"), ev.NotesWritten(revision=2, text="new"))
        found = originals(turns)
        assert [prompt.text for prompt in found.prompts(len(turns.log), 2)] == ["input 2", "input 3"]
        note = found.note()
        assert note is not None
        assert (note.seq, note.turn, note.revision, note.text) == (len(turns.log) - 1, None, 2, "new")


def test_inputs_far_apart_are_found_and_a_newer_note_is_noticed() -> None:
    with session(PLAIN) as turns:
        found = originals(turns)
        for number in range(3):
            turns.turn(f"input {number}", *[Step("", [Cell()])] * 20)
            turns.log.append(ev.NotesWritten(revision=number + 1, text=f"note {number}"))
            for _ in range(2):
                note = found.note()
                assert note is not None
                assert (note.text, note.revision) == (f"note {number}", number + 1)
            newest = found.prompts(len(turns.log), 5)
            assert [(prompt.turn, prompt.text) for prompt in newest] == [
                (each + 1, f"input {each}") for each in range(number + 1)
            ]
        assert [prompt.text for prompt in found.prompts(len(turns.log), 2)] == ["input 1", "input 2"]

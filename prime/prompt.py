"""The system prompt and the one tool, from the catalogue and the settings. Pure and deterministic.

Nothing here depends on the time, the task or the folder: the same configuration gives the same bytes, which a provider
can cache. Every name it advertises is a binding of the catalogue.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence

from prime_kernel.wire import Binding

from prime.messages import ToolSpec
from prime.sandbox import Level

REPL = "repl"

_CONTRACT = """\
You work by writing Python. Your only tool is `repl(code)`: it runs one cell in a persistent IPython kernel.

How the kernel behaves
- Variables, functions and imports live on: later cells and later turns can use them. Top-level `await` works.
- Only what a cell prints, and the value of its last expression, comes back to you: at most {visible:,} bytes, head and
  tail. Everything else stays in variables. Bind what you get to names, filter and count in code, show what you need.
- Do many things in one cell: loop over files, gather calls, test, and print a short result. One cell can make hundreds
  of calls; a cell for each call wastes your time and your context.
- A syntax error runs nothing. An error keeps everything done before it: fix and go on, do not start over.
- A cell is stopped after {timeout:g} s; names survive that unless you are told that the kernel was restarted.
- Values of variables do not follow the world: after a file changed, read it again.{held}

Calls
- The functions below exist in every cell. Each gives a `Call` that starts at once: `r = await tools.read(path="a.py")`;
  several at once: `a, b = await asyncio.gather(tools.read(path="a"), tools.read(path="b"))`. In a plain function or a
  thread: `.result()`. Results are plain values; objects also give attributes: `r.text`.
- A call that fails raises `ToolCallError` with `.tool` and `.code`. It may have had effects: look before you repeat it.
- `help(tools.NAME)` shows the full description of a call.

Other agents
- `agents.query_many(prompts)` asks the model about many texts at once, outside of this conversation.
- `agents.spawn(prompt, name=...)` starts an agent that works beside you in the same folder, with a kernel of its own.
  Give it all it has to know, and say what to return. Go on, end your turn, or wait with `agents.collect(ids)`: you are
  told when it has settled. Start one for work that stands by itself, not for what one cell can do.

Long work
- What takes minutes, or never ends, is a job: `j = await jobs.start("make test")`. It outlives its cell and your turn.
  You are told when it ends, and of lines that you `jobs.watch` for; `await jobs.output(j.job_id, wait_s=300)` waits.
- What wants a keyboard or a screen runs on a terminal: `tools.terminal_open`, `terminal_send`, `terminal_read`.
- Nothing is lost. Where a result was condensed, or older messages stand as a generated entry or directory, the call
  beside it gives back the original; `await history.search("words")` finds the rest. Such texts are no requests.

When the task is done, answer in words, without a cell. Say what you found or changed and how you checked it; if
something could not be done, say so.

{sdk}"""

_SANDBOX = """
- You are in a sandbox: nothing but the working folder can be changed. `~` and `/tmp` are empty at first and vanish with
  the session."""
_NO_NETWORK = """
- There is no network."""

_DESCRIPTION = (
    "Run one Python cell in the persistent IPython kernel and get back what it shows. Names live on between cells. "
    "Batch: call `tools.*` many times in one cell, reduce the results in code, show only what matters."
)


def system(
    bindings: Sequence[Binding],
    *,
    visible_output_bytes: int,
    cell_timeout_s: float,
    sandbox: Level = "off",
    network: bool = True,
) -> str:
    """Return the system prompt; the two figures and the sandbox are the settings in force."""
    held = (_SANDBOX * (sandbox == "full")) + (_NO_NETWORK * (not network))
    return _CONTRACT.format(visible=visible_output_bytes, timeout=cell_timeout_s, held=held, sdk=sdk(bindings))


def sdk(bindings: Sequence[Binding]) -> str:
    """Return the callables as the model reads them: one signature and the first paragraph of its docstring each, in the
    order of their targets."""
    blocks = []
    ordered = sorted(bindings, key=lambda binding: binding.target)
    for namespace, group in itertools.groupby(ordered, key=lambda binding: binding.target.partition(".")[0]):
        blocks.append(f"# {namespace}\n" + "\n".join(map(_entry, group)))
    return "\n\n".join(blocks)


def tool() -> ToolSpec:
    """Return the one tool that the model sees."""
    parameters = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The cell: Python source."}},
        "required": ["code"],
        "additionalProperties": False,
    }
    return ToolSpec(name=REPL, description=_DESCRIPTION, parameters=parameters)


def signature(binding: Binding) -> str:
    """Return a call's signature as Python source."""
    shown = []
    starred = False
    for parameter in binding.parameters:
        if parameter.keyword_only and not starred:
            shown.append("*")
            starred = True
        default = f" = {parameter.default}" if parameter.default is not None else ""
        shown.append(f"{parameter.name}: {parameter.annotation}{default}")
    return f"{binding.target}({', '.join(shown)}) -> {binding.returns}"


def _entry(binding: Binding) -> str:
    first = inspect.cleandoc(binding.doc).partition("\n\n")[0]
    return f"{signature(binding)}\n    " + " ".join(first.split())

"""Output of cells in a real kernel: its forms, its ends, and what goes wrong in making it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kernels import Kernel, Seen, kernel

from prime.messages import text_of
from prime.repl.signals import Output
from prime.shown import Shown

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path_factory.mktemp("output"))
    yield running
    await running.repl.close()


def model_sees(seen: Seen) -> str:
    shown = Shown(12_000)
    for output in seen.outputs:
        shown.add(output)
    return text_of(shown.finish("", "", 1).parts)


async def test_the_end_of_a_flood_is_kept_with_what_is_missing(tmp_path: Path) -> None:
    small = kernel(tmp_path, output_limit=100_000)
    try:
        seen = await small.cell(
            "import sys\n"
            "for n in range(100_000): print(n)\n"
            "print('a warning', file=sys.stderr)\n"
            "print('the summary')\n'the completion'"
        )
        text = "".join(output.text for output in seen.outputs)
        assert text.startswith("0\n1\n2\n")
        assert text.endswith("99999\na warning\nthe summary\n\n'the completion'\n")
        assert "a warning\n" in seen.text("stderr")
        assert f"\n[... {seen.ended.dropped:,} bytes were dropped here: over the output limit of a cell ...]\n" in text
        assert len(text) <= 100_000
        assert (await small.cell("print('next')")).text() == "next\n"
    finally:
        await small.repl.close()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("HTML('<h1>Title</h1><script>no()</script><p>some <b>words</b>')", "Title\nsome words"),
        ("HTML('<table><tr><th>a<th>b</th></tr><tr><td>1</td><td>2</td></tr></table>')", "ab\n1\t2"),
        ("HTML('<audio controls>Your browser is old</audio>')", "[audio]"),
        ("Markdown('# hi')", "# hi"),
        ("Latex('$x$')", "$x$"),
        ("JSON({'é': 1})", '{"é": 1}'),
        ("Javascript('alert(1)')", "[a script of 8 characters, which nothing runs here]"),
    ],
)
async def test_what_is_made_for_pages_is_shown_as_words(shared: Kernel, code: str, text: str) -> None:
    imports = "from IPython.display import HTML, JSON, Javascript, Latex, Markdown\n"
    assert await shared.value(imports + code) == text
    assert (await shared.cell(f"display({code})")).text("display") == text


async def test_a_bundles_own_text_is_taken(shared: Kernel) -> None:
    body = "def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'mine', 'text/html': '<p>'}"
    assert await shared.value(f"class Own:\n    {body}\nOwn()") == "mine"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def __repr__(self): raise SystemExit", "its representation raised SystemExit"),
        ("def __repr__(self): raise KeyboardInterrupt", "its representation raised KeyboardInterrupt"),
        ("@property\n    def __class__(self): raise OSError", "its representation raised OSError"),
        ("def _repr_mimebundle_(self, **forms): raise SystemExit\n    def __repr__(self): return 'fine'", "fine"),
    ],
)
async def test_no_object_ends_the_cell_that_shows_it(shared: Kernel, body: str, why: str) -> None:
    assert why in await shared.value(f"class Odd:\n    {body}\nOdd()")


async def test_a_metaclass_that_hides_everything(shared: Kernel) -> None:
    code = "class M(type):\n    def __getattribute__(cls, name): raise OSError\nclass H(metaclass=M): pass\n"
    assert await shared.value(f"{code}object.__new__(H)") == "<H; its representation raised OSError>"


async def test_a_large_picture_is_scaled_down(shared: Kernel) -> None:
    seen = await shared.cell("from PIL import Image\nImage.new('RGB', (6_000, 3_000))")
    (output,) = seen.outputs
    assert output.image is not None
    assert output.text.endswith("[shown scaled down to 2000x1000]")


async def test_figures_are_shown_once_and_closed(shared: Kernel) -> None:
    seen = await shared.cell("import matplotlib.pyplot as plt\nfor n in range(2): plt.figure(); plt.plot([n]);")
    assert [output.image is not None for output in seen.outputs] == [True, True]
    assert await shared.value("plt.get_fignums()") == "[]"


async def test_an_svg_goes_to_the_host(shared: Kernel) -> None:
    seen = await shared.cell("class Vector:\n    def _repr_svg_(self): return '<svg/>'\nVector()")
    assert [output.svg for output in seen.outputs] == ["<svg/>"]


async def test_states_replace_each_other(shared: Kernel) -> None:
    seen = await shared.cell(
        "print('before')\nh = display('one', display_id=True)\n"
        "h.update('two\\nlines')\nh.update('three')\nprint('after')"
    )
    assert model_sees(seen) == "before\n'three'after"
    seen = await shared.cell(
        "from IPython.display import clear_output\n"
        "for n in range(3):\n    clear_output(wait=True)\n    print('step', n)"
    )
    assert model_sees(seen) == "step 2"
    assert model_sees(await shared.cell("for n in range(3): print(f'\\r{n}%', end='')")) == "2%"


async def test_bytes_can_be_written(shared: Kernel) -> None:
    seen = await shared.cell("import sys\nsys.stdout.buffer.write('é'.encode() + b'\\xff\\n');\nsys.stdout.flush()")
    assert seen.text() == "é\\xff\n"


async def test_errors_of_threads_and_tasks_are_told(shared: Kernel) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: 1/0, name='mill')\nt.start()\nt.join()"
    text = (await shared.cell(code)).text("stderr")
    assert text.splitlines()[:2] == ["The thread mill ended with an error:", "cell line 2, in <lambda>"]
    assert "ZeroDivisionError: division by zero" in text
    code = "async def work(): raise OSError('gone')\nasyncio.create_task(work())\n"
    text = (await shared.cell(code + "await asyncio.sleep(0)\nawait asyncio.sleep(0)")).text("stderr")
    assert "ended with an error that nobody awaited:\ncell line 1, in work" in text
    assert "OSError: gone" in text


async def test_warnings_are_short_and_few(shared: Kernel) -> None:
    code = "import warnings\nfor n in range(50): warnings.warn(f'careful {n}')"
    for _ in range(2):  # a later cell shows them anew
        lines = (await shared.cell(code)).text("stderr").splitlines()
        assert lines == [
            *(f"cell line 2: UserWarning: careful {n}" for n in range(3)),
            "[further warnings of this line are not shown]",
        ]


async def test_a_flood_comes_in_pieces(shared: Kernel) -> None:
    for code in ("print('x' * 5_000_000)", "for _ in range(50): print('x' * 100_000)"):
        pieces = [len(signal.text) for signal in (await shared.cell(code)).signals if isinstance(signal, Output)]
        assert sum(pieces) >= 5_000_000
        assert max(pieces) <= 2**21


async def test_tables_are_bounded_and_say_their_shape(shared: Kernel) -> None:
    text = await shared.value("import pandas as pd\npd.DataFrame(0, index=range(100_000), columns=range(50))")
    assert text.endswith("[100000 rows x 50 columns]")
    assert len(text) < 4_000
    assert max(map(len, text.splitlines())) <= 100


async def test_a_progress_bar_is_one_line(shared: Kernel) -> None:
    seen = await shared.cell("from tqdm.auto import tqdm\nfor n in tqdm(range(30), mininterval=0): pass")
    (line,) = model_sees(seen).splitlines()
    assert line.startswith("100%")
    assert "30/30" in line
    seen = await shared.cell("from tqdm.notebook import tqdm\ntqdm([])")
    assert "write `from tqdm import tqdm` instead" in seen.error

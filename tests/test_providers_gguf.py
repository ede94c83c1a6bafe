import struct

import pytest
from llama_double import write_gguf

from prime.errors import ConfigError
from prime.providers.gguf import read_header

ENTRIES = {
    "general.architecture": "qwen2",
    "tokenizer.ggml.tokens": ["a", "bb", "ccc"],
    "qwen2.context_length": 32768,
    "tokenizer.chat_template": "{{ messages }} ✓",
}


@pytest.mark.parametrize("version", [2, 3])
def test_wanted_entries_are_read_whatever_stands_between(tmp_path, version: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", ENTRIES, version=version)
    wanted = ("qwen2.context_length", "tokenizer.chat_template", "general.name")
    assert read_header(path, wanted) == {"qwen2.context_length": 32768, "tokenizer.chat_template": "{{ messages }} ✓"}


def test_every_scalar_type_is_skipped_and_read(tmp_path) -> None:
    values = {0: ("<B", 7), 1: ("<b", -7), 2: ("<H", 9), 3: ("<h", -9), 4: ("<I", 1), 5: ("<i", -1), 6: ("<f", 0.5)}
    values |= {7: ("<?", True), 10: ("<Q", 2**40), 11: ("<q", -(2**40)), 12: ("<d", 0.25)}
    data = struct.pack("<4sIQQ", b"GGUF", 3, 0, 2 * len(values))
    for kind, (form, value) in values.items():
        for prefix in ("skip", "want"):
            name = f"{prefix}{kind}".encode()
            data += struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + struct.pack(form, value)
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    wanted = {f"want{kind}": value for kind, (_, value) in values.items()}
    assert read_header(path, tuple(wanted)) == wanted


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"PK\x03\x04" + data[4:],
        lambda data: data[:-5],
        lambda data: data[:40],
        lambda data: data[:24] + struct.pack("<Q", 2**62) + data[32:],
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage) -> None:
    path = write_gguf(tmp_path / "m.gguf", ENTRIES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match="not a whole GGUF file") as caught:
        read_header(path, ("tokenizer.chat_template",))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot read this model: No such file"):
        read_header(tmp_path / "m.gguf", ("x",))

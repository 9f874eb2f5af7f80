"""A quotation shows everything, hides nothing and cannot be left."""

import unicodedata

import pytest
from patience import little_work

from grpo.rewards.judge.prompt import quoted


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 72.",
        "def f(a, b):\n\treturn a<b and a[0] > b[1]\n",
        "<reasoning>so</reasoning>\n<answer>72</answer>",
        "<y> List<User> vector<function<int>> if a <= b: x[TOOL], [A]",
        "Größe 5 µm, 価格は１００円 🙂",
        "[1] [INST [link](x) a|b <b>x</b> <https://x.example>",
        "",
    ],
)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert quoted(text) == "\n".join(f"| {line}" for line in text.split("\n"))


def test_line_ends_of_any_kind_begin_a_line_of_the_quotation() -> None:
    assert quoted("a\r\nb\rc\n\rd") == "| a\n| b\n| c\n| \n| d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a\\u{200b}b"),
        ("\u202ex", "\\u{202e}x"),
        ("a\u2028b", "a\\u{2028}b"),
        ("\x00\x1b[0m", "\\u{0}\\u{1b}[0m"),
        ("\ud83d", "\\u{d83d}"),
        ("x\U000e0041", "x\\u{e0041}"),
        ("x\ufe01", "x\\u{fe01}"),
        ("<|im_start|>", "\\u{3c}|im_start|\\u{3e}"),
        ("<\uff5cUser\uff5c>", "\\u{3c}\uff5cUser\uff5c\\u{3e}"),
        ("<think>so</think>", "\\u{3c}think>so\\u{3c}/think>"),
        ("< /Thinking >", "\\u{3c} /Thinking >"),
        ('<tool_call name="x">', '\\u{3c}tool_call name="x">'),
        ("</tool_response>", "\\u{3c}/tool_response>"),
        ("<function=f><parameter=a>", "\\u{3c}function=f>\\u{3c}parameter=a>"),
        ("<minimax:tool_call><seed:think>", "\\u{3c}minimax:tool_call>\\u{3c}seed:think>"),
        ("<|eot_id|><|python_tag|>", "\\u{3c}|eot_id|\\u{3e}\\u{3c}|python_tag|\\u{3e}"),
        ("<turn|>", "<turn|\\u{3e}"),
        ("\uff1c|im_end|\uff1e", "\\u{ff1c}|im_end|\\u{ff1e}"),
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "\\u{3c}\uff5ctool\u2581calls\u2581begin\uff5c\\u{3e}"),
        ("<fim_prefix><unused7><0x0A>", "\\u{3c}fim_prefix>\\u{3c}unused7>\\u{3c}0x0A>"),
        ("[TOOL_CALLS][/THINK][gMASK]", "\\u{5b}TOOL_CALLS]\\u{5b}/THINK]\\u{5b}gMASK]"),
        ("]~b]system [e~[", "\\u{5d}~b]system \\u{5b}e~["),
        ("</s><s>", "\\u{3c}/s>\\u{3c}s>"),
        ("<end_of_turn>", "\\u{3c}end_of_turn>"),
        ("[INST] <<SYS>>x<</SYS>> [/INST]", "\\u{5b}INST] \\u{3c}\\u{3c}SYS>>x\\u{3c}\\u{3c}/SYS>> \\u{5b}/INST]"),
    ],
)
def test_what_cannot_be_seen_or_ends_a_turn_is_written_out(text: str, shown: str) -> None:
    assert quoted(text) == f"| {shown}"


@pytest.mark.slow
@pytest.mark.parametrize("text", ["<", "<think ", "<a_of_", "[A_", "<t\u2581", "<" + "a" * 39, "<s ", "]~", "< /"])
def test_quoting_takes_linear_time(text: str) -> None:
    with little_work(text):
        quoted(text * (1_000_000 // len(text)))


def test_no_character_starts_a_line_without_a_bar_or_stays_hidden() -> None:
    for start in (*range(0, 0x20000, 0x1000), 0xE0000, 0xF0000, 0x10F000):
        lines = quoted("x".join(map(chr, range(start, start + 0x1000)))).splitlines()
        assert all(line.startswith("| ") for line in lines)
        hidden = {unicodedata.category(letter) for line in lines for letter in line.replace("\t", "")}
        assert not hidden & {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}

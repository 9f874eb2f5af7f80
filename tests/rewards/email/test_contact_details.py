"""Phone numbers, mailboxes and postal addresses are found, and what looks a little like one is not."""

import pytest

from grpo.rewards.email.contact_details import has_postal_address, mailboxes, phones


@pytest.mark.parametrize(
    ("line", "digits"),
    [
        ("+44 113 496 0123", "441134960123"),
        ("Tel.: (217) 555-0100", "2175550100"),
        ("M +49 (0) 30/901820", "49030901820"),
        ("Phone: 555.0100", "5550100"),
        ("01.42.68.53.00", "0142685300"),
        ("+81-3-1234-5678", "81312345678"),
        ("+7 (495) 123-45-67", "74951234567"),
        ("+1\u2011212\u2011555\u20110123", "12125550123"),
        ("Tel: +1-800-555-0199 ext. 23", "18005550199"),
        ("0113 496 0123 | tom@x.example", "01134960123"),
    ],
)
def test_a_phone_number_is_found(line: str, digits: str) -> None:
    assert phones([line]) == [digits]


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-15",
        "15.01.2024",
        "1/15/2024",
        "Springfield, IL 62704-1234",
        "since 15/01/2024 10",
        "Order 4417",
        "[Your Phone]",
        "XXX-XXX-XXXX",
        "12 Mill Lane",
        "1" * 40,
        "tom20240115@x.example",
        "",
    ],
)
def test_a_date_a_postcode_or_a_placeholder_is_no_phone_number(line: str) -> None:
    assert phones([line]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tom@bakercycles.example", ["tom@bakercycles.example"]),
        ("E-mail: Tom.Baker+x@Mail.Baker-Cycles.co.uk.", ["tom.baker+x@mail.baker-cycles.co.uk"]),
        ("[tom@x.example](mailto:tom@x.example)", ["tom@x.example"] * 2),
        ("mailto:tom@x.example", ["tom@x.example"]),
        ("Tom <tom@x.example>, Leeds", ["tom@x.example"]),
        ("tom@localhost", []),
        ("tom@@x.example", []),
        ("@tom", []),
        ("[Your Email]", []),
        ("tom@x..example", []),
    ],
)
def test_mailboxes_are_found(line: str, found: list[str]) -> None:
    assert mailboxes([line]) == found


@pytest.mark.parametrize(
    "line",
    [
        "12 Mill Lane, Leeds",
        "221B Baker Street",
        "Hauptstraße 5",
        "Hauptstr. 5, 10115 Berlin",
        "14, rue de Rivoli",
        "P.O. Box 123",
        "Springfield, IL 62704",
        "London SW1A 1AA",
        "Ottawa K1A 0B1",
        "1012 LG Amsterdam",
        "00-001 Warszawa",
        "\u5efa\u56fd\u8def1\u53f7",
        "Keizersgracht 5, 1015 CJ Amsterdam, Prinsenstraat 7",
    ],
)
def test_a_postal_address_is_found(line: str) -> None:
    assert has_postal_address([line])


@pytest.mark.parametrize(
    "line",
    [
        "Tom Baker",
        "Head of Street Marketing",
        "[Your Address]",
        "+44 113 496 0123",
        "Tel: +1-800-555-0199 ext. 23",
        "020 7946 0958 mobile",
        "We open at 9.30",
        "tom@street5.example",
        "2024",
        "",
    ],
)
def test_a_name_or_a_number_alone_is_no_postal_address(line: str) -> None:
    assert not has_postal_address([line])

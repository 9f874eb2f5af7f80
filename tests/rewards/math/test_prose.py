"""What prose says around its answer: conditions, reasons, units, ends of proofs, words that something is."""

import pytest

from grpo.rewards.math.verifier import math
from grpo.rewards.numbers.quantity import same_amount

READ = {
    "one answer in two ways": [
        ("So the angle is $60^\\circ$, or $\\frac{\\pi}{3}$ radians.", "60^\\circ", "30^\\circ"),
        ("So the angle is $60^\\circ$, or $\\frac{\\pi}{3}$ radians.", "\\frac{\\pi}{3}", "\\frac{\\pi}{4}"),
        ("So $y = 3x - 4$, or equivalently $3x - y = 4$.", "y=3x-4", "y=3x+4"),
        ("Thus the side length is $2\\sqrt{3}$ (approximately 3.46).", "2\\sqrt{3}", "3\\sqrt{2}"),
        ("So the car's speed is 20 m/s, or 72 km/h.", "72 km/h", "20 km/h"),
        ("The boxes hold \\boxed{\\frac{1}{2} \\text{ or } 0.5}.", "0.5", "0.25"),
    ],
    "one quantity of several units": [
        ("The journey takes 3 hours and 15 minutes.", "3 hours 15 minutes", "3 hours 50 minutes"),
        ("The total time is 90 minutes, which is 1 hour and 30 minutes.", "1 hour 30 minutes", "1 hour 20 minutes"),
        ("\\boxed{3 \\text{ hours } 20 \\text{ minutes}}", "200 minutes", "320 minutes"),
        ("He is 5 ft 6 in tall.", "5 feet 6 inches", "6 feet 5 inches"),
        ("It takes 3h 20m.", "3 hours and 20 minutes", "3 hours"),
        ("The pressure is $1.01 \\times 10^5$ Pa.", "1.01\\times10^5 Pa", "1.01\\times10^5 kPa"),
    ],
    "times": [
        ("The train arrives at 10:30.", "10:30", "10:40"),
        ("The movie ends at 10:45.", "10:45", "9:45"),
    ],
    "ranges, moments and powers": [
        ("There are 4 solutions in the interval [0, 2\u03c0].", "4", "2"),
        ("v = 10 m/s at t = 2 s.", "10 m/s", "2"),
        ("2^6 = 64 cells after 6 hours.", "64", "6"),
        ("It would decrease.", "decrease", "increase"),
    ],
    "points and what does not exist": [
        ("The lines intersect at the point (3, 4).", "(3,4)", "(4,3)"),
        ("Since the one-sided limits are different, the limit does not exist.", "DNE", "0"),
    ],
    "names": [
        ("Hamlet was written by William Shakespeare.", "William Shakespeare", "Marlowe"),
        ("Sarah has more money.", "Sarah", "Tom"),
        ("The price will increase.", "increase", "decrease"),
        ("So the sum is always even.", "even", "odd"),
        ("It's a parallelogram!", "parallelogram", "square"),
        ("The process is called **photosynthesis**.", "photosynthesis", "respiration"),
        ("The marble is most likely blue.", "blue", "green"),
        ("100 = 14 * 7 + 2, so the day is two days after Sunday: Tuesday.", "Tuesday", "Sunday"),
    ],
    "several boxes": [
        ("The roots are $\\boxed{1}$, $\\boxed{2}$, and $\\boxed{3}$.", "1,2,3", "1,2"),
        ("\\boxed{\\log_e 2}", "\\ln 2", "\\log 3"),
    ],
    "where and for what": [
        ("The minimum value of $f$ is thus $6$, attained at $x = 2$.", "6", "2"),
        ("Thus the smallest such $n$ is $1006$, since for $n = 1005$ the construction fails.", "1006", "1005"),
        ("The only function is $f(x) = 2x$ for all real $x$.", "f(x)=2x", "f(x)=x"),
        ("f(x)=2x for all x \\in \\mathbb{R}", "f(x)=2x", "f(x)=3x"),
    ],
    "behind a clause": [
        ("By the power rule, f'(x) = 3x^2.", "3x^2", "2x^3"),
        ("This holds if and only if k > 1.", "k > 1", "k < 1"),
        ("x + 3 = 0, so x = -3", "x=-3", "x=3"),
        ("The expression simplifies to (x+2)/(x-1).", "\\frac{x+2}{x-1}", "\\frac{x-1}{x+2}"),
        ("Therefore the number of such functions is $2^{9} - 1$. $\\square$", "2^9-1", "2^8-1"),
        ("= \u221a7", "\\sqrt{7}", "7"),
    ],
    "words": [
        ("The graph is an ellipse.", "ellipse", "hyperbola"),
        ("So it is a Monday.", "Monday", "Tuesday"),
        ("The fastest student is Evelyn.", "Evelyn", "Briana"),
        ("Hence the day is **Monday**, not Sunday.", "Monday", "Sunday"),
        ("The quadrilateral is a rhombus.", "rhombus", "parallelogram"),
    ],
    "units": [
        ("F = 0.25 kN", "250 N", "25 N"),
        ("The pressure is 101.325 kPa.", "101325 Pa", "101.325 Pa"),
        ("It takes 20 hours.", "20 hours", "20 minutes"),
        ("Answer: $0.25", "25 cents", "25 dollars"),
        ("Answer: $\\frac{\\pi}{3}$", "60 degrees", "30 degrees"),
        ("The time is t = \u221a(2h/g).", "\\sqrt{\\frac{2h}{g}}", "\\sqrt{\\frac{h}{g}}"),
    ],
    "spellings": [
        ("Answer: 15:30", "3:30 PM", "3:30 AM"),
        ("10^6", "1e6", "1e5"),
        ("\\framebox{42}", "42", "24"),
        ("a\u2099 = 2\u207f \u2212 1", "a_n = 2^n - 1", "a_n = 2^n"),
        ("The answer is minus 17", "-17", "17"),
        ("Therefore, the probability is 1/36, or about 2.8%.", "\\frac{1}{36}", "\\frac{1}{6}"),
    ],
}


@pytest.mark.parametrize("kind", READ)
def test_an_answer_in_prose_is_read_without_what_stands_around_it(kind: str) -> None:
    for text, gold, other in READ[kind]:
        assert math(text, gold).ok is True, text
        assert math(text, other).ok is False, text


@pytest.mark.parametrize(
    "text",
    [
        "So $m+n$ is 41 + 72.",
        "\\boxed{\\max(112, 113)}",
        "\\boxed{" * 40 + "113" + "}" * 40,
    ],
)
def test_what_is_left_to_compute_or_nested_without_end_is_wrong(text: str) -> None:
    assert math(text, "113").ok is False


@pytest.mark.parametrize(
    "text", ["The graph is not an ellipse.", "The graph is an ellipse or a hyperbola.", "Is it an ellipse?"]
)
def test_words_that_are_denied_offered_or_asked_are_not_said(text: str) -> None:
    assert math(text, "ellipse").ok is False


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("So the angle is $60^\\circ$, or $\\frac{\\pi}{4}$ radians.", "60^\\circ"),
        ("It takes 3 hours or 3 hours and 20 minutes.", "3 hours 20 minutes"),
        ("<answer></answer> 72 73 74", "72"),
        ("The answer cannot be A.", "A"),
        ("I don't know. 0", "0"),
        ("6 is not the answer.", "6"),
        ("The answer is the number such that x = 6 or x != 6.", "6"),
        ("Sarah has less money than Tom.", "Sarah"),
        ("75% of the students (90 out of 120) passed the exam.", "120"),
    ],
)
def test_two_values_none_and_another_one_are_wrong(text: str, gold: str) -> None:
    assert math(text, gold).ok is False


def test_sizes_that_get_no_smaller_are_quantities_of_their_own() -> None:
    assert same_amount("5 m, 3 m", "8 m") is None
    assert same_amount("1 h 30 min", "90 min") is True
    assert same_amount("90 min", "90 min") is None

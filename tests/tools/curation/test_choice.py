"""Multiple choice turned into its value, or recognised where it cannot be."""

import contextlib
import signal

import pytest

from tools.curation.choice import find_choices, is_choice_answer, to_value
from tools.curation.repair import repair
from tools.curation.row import Row
from tools.curation.sets import Habits


@pytest.mark.parametrize(
    ("problem", "answer", "turned"),
    [
        (
            "What is the value of $2^3 + 1$ in full?\n"
            r"$\textbf{(A) }7\qquad\textbf{(B) }8\qquad\textbf{(C) }9$",
            "9",
            ("What is the value of $2^3 + 1$ in full?", "9"),
        ),
        (
            "Find the length of the side $AB$.\nA) $\\sqrt{2}$\nB) $3$\nC) $5$",
            "B",
            ("Find the length of the side $AB$.", "3"),
        ),
        (
            "How many pegs fit into $R$? The options are:\nA) 6\nB) 8\nC) 9",
            "B",
            ("How many pegs fit into $R$?", "8"),
        ),
        (
            "How many pieces of string are there?\n\nA. 15  \nB. 16  \nC. 17",
            "(C)",
            ("How many pieces of string are there?", "17"),
        ),
        (
            r"The perimeter of the square is $\text{(A)}\ 4 \quad \text{(B)}\ \frac92"
            r" \quad \text{(C)}\ 5$",
            r"\frac92",
            ("The perimeter of the square is", r"\frac92"),
        ),
        (
            "How much do they have to pay if it costs $10?\nA) $38\nB) $30\nC) $42",
            "B",
            ("How much do they have to pay if it costs $10?", "30"),
        ),
        (
            "Determine the chance of a round table.\n\n- **A**: $2$\n- **B**: $3$"
            "\n- **C**: $5$",
            "3",
            ("Determine the chance of a round table.", "3"),
        ),
        (
            "What is the probability that neither of these two events will occur? A)"
            " 0.22 B) 0.26 C) 0.37",
            "B",
            (
                "What is the probability that neither of these two events will occur?",
                "0.26",
            ),
        ),
        (
            "How many additional bags does each cup need? A)None B)One C)Two D)Three",
            "B",
            ("How many additional bags does each cup need?", "One"),
        ),
        (
            "A train of 240 m passes a pole in 24 s. How long does it take to pass"
            " 650 m? Choose the correct option:\nA) 77 sec\nB) 89 sec\nC) 9 sec",
            "B",
            (
                "A train of 240 m passes a pole in 24 s. How long does it take to"
                " pass 650 m?",
                "89 sec",
            ),
        ),
        (
            "What is 3 more than the sum of the following numbers: 5, 15?\n"
            "(A) 20\n(B) 23\n(C) 25",
            "B",
            ("What is 3 more than the sum of the following numbers: 5, 15?", "23"),
        ),
        (
            "What is the least even prime? Choose the correct answer from the following"
            " options:\nA) 1\nB) 2\nC) 3",
            "B",
            ("What is the least even prime?", "2"),
        ),
        (
            "How old is she in 2014, if she was 5 in 2010?\n"
            "A) 8\nB) 9\nC) Impossible to determine",
            "B",
            ("How old is she in 2014, if she was 5 in 2010?", "9"),
        ),
        (
            r"Compute \[x\] Choose the correct answer from the options below:"
            "\n1. $a$\n2. $b$\n3. $c$",
            "3",
            (r"Compute \[x\]", "c"),
        ),
        (
            "Find $M$ if $M = 7/4$.\n(a) 3/2\n(b) 7/4\n(c) 2",
            "B",
            ("Find $M$ if $M = 7/4$.", "7/4"),
        ),
        ("Find the even one.\n(a) 3\n(b) 4\n(c) 5", "4", ("Find the even one.", "4")),
        ("Find the base.\n(A) 2\n(B) 10\n(C) e", "e", ("Find the base.", "e")),
        # ten options
        (
            "How many such numbers are there?\n"
            + "\n".join(f"{label}. {n}" for n, label in enumerate("ABCDEFGHIJ", 35)),
            "I",
            ("How many such numbers are there?", "43"),
        ),
        # displayed formulas end before the next option begins
        (
            "Find the value of\n$$\n\\int_0^1 x \\, dx\n$$\nA. 1\nB. 2\nC. 1/2",
            "C",
            ("Find the value of\n$$\n\\int_0^1 x \\, dx\n$$", "1/2"),
        ),
        (
            "Find the value of $x$.\nA. $$\n4\n$$\nB. $$\n3\n$$\nC. $$\n\\pi\n$$",
            "A",
            ("Find the value of $x$.", "4"),
        ),
        (
            "Find the value of $x$.\nA. $$\n4\n$$\nB. $$\n3\n$$\nC. $$\n\\pi\n$$",
            "C",
            ("Find the value of $x$.", "\\pi"),
        ),
        # letters from elsewhere in the alphabet: Science Bowl, and every second of ACT
        (
            "What is the sum of the primes below 10? W) 15 X) 16 Y) 17 Z) 18",
            "Y",
            ("What is the sum of the primes below 10?", "17"),
        ),
        (
            "What is the value of $f(1)$?\nF. -16\nG. -7\nH. -5\nJ. -1\nK. 0",
            "J",
            ("What is the value of $f(1)$?", "-1"),
        ),
        # a list of other things before the options
        (
            "Let (P) be a plane. What is $n$?\n(A) 3\n(B) 4\n(C) 5",
            "B",
            ("Let (P) be a plane. What is $n$?", "4"),
        ),
        # parts, whose answer is none of them
        ("Calculate:\n(1) $2+3$;\n(2) $4+5$;\n(3) $1+1$.", "3", None),
        ("Find:\n(a) $x$;\n(b) $2x$;\n(c) $3x$.", "4", None),
        # the options are the question
        ("Name a prime. Choose one of these numbers:\nA) 4\nB) 5\nC) 6", "B", None),
        ("What is its approximate length?\nA) 30\nB) 40\nC) 60", "B", None),
        ("Which equation has no root:\nA) x=1\nB) x=2\nC) 0=3", "C", None),
        ("Which quadratic equation has no root:\nA) x=1\nB) x=2\nC) x=3", "B", None),
        ("Which of the following is prime?\n(A) 4\n(B) 5\n(C) 6", "B", None),
        # the letter names no option
        ("What is the sum of the angles here?\n(A) 4\n(B) 5\n(C) 6", "E", None),
    ],
)
def test_to_value(problem, answer, turned):
    assert to_value(problem, answer) == turned


@pytest.mark.parametrize(
    "problem",
    [
        "Start with an integer  $A$ . Obtain  $B$  by halving  $A$ . Obtain  $C$  by"
        " doubling  $B$ . Obtain  $D$  by subtracting  $500$  from  $C$ . Given that"
        "  $A + B + C + D = 2014$ , find  $A$ .",
        "They said:\nA: I lie.\nB: C lies.\nC: B lies.\nD: A lies.\n\nThey came as"
        " $A, B, C, D$. Determine their places.",
        r"Let \(A\), \(B\), \(C\) be points with $n(A) + n(B) + n(C) = 3$. Find $x$.",
        "A says: I am first.\nB says: A lies.\nC says: nothing.\nWho is first?",
        "Numbers satisfy: (A) one is odd, (B) one is even, (C) none is 5. How many?",
        "A boat goes from A to B and back. B is far. C is near. What is its speed?",
    ],
)
def test_letters_that_are_no_options(problem):
    assert find_choices(problem) is None


@pytest.mark.parametrize(
    ("answer", "names_options"),
    [
        (r"\text{(C)}", True), ("(B)", True), ("(a)", True),
        ("①③", True),
        ("(1)(2)(4)", True), ("(3)", True), ("C", False), ("12", False),
        ("(1, 2)", False), ("A + B", False),
    ],
)  # fmt: skip
def test_answers_that_name_options(answer, names_options):
    assert is_choice_answer(answer) is names_options


@contextlib.contextmanager
def processor_seconds(most):
    """Ends what takes more of this process's own time, however busy the machine is."""

    def end(*_):
        raise AssertionError(f"more than {most} seconds of work")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "text",
    [" " * 4000 + "x", "\n" * 4000 + "x", "(A) 1 (B) 2 (C)" + " " * 4000 + "x"],
    ids=["blanks", "lines", "after an option"],
)
def test_a_run_of_blanks_costs_no_power_of_its_length(text):
    row = Row(id="a", problem=text, answers=("B",))
    with processor_seconds(2):
        find_choices(text)
        to_value(text, "B")
        Habits([(text, "B")] * 20).undone(row)
        repair(row)

import pytest

from rl.evaluate import SampledCompletion, Scored
from rl.types import Problem
from rl.verifier import Verdict
from tests.rl.examples import make_scored
from tools.evaluation import report
from tools.evaluation.report import average_of_five, benchmark_result, completions
from tools.page import markdown, page

PROBLEMS = [
    Problem(id="a", problem="?", answers=("1",), level=1),
    Problem(id="b", problem="?", answers=("2",), level=3),
    Problem(id="c", problem="?", answers=("3",), level=3),
]


def result():
    rights = ("1101", "0000", "0100")  # of four completions of each problem
    rows = []
    for problem, right in zip(PROBLEMS, rights, strict=True):
        rows += make_scored(problem, right.replace("1", problem.answers[0]))
    classes = {"a": [0, 0, 1, 0], "b": [2, 2, 2, 2], "c": [3, 4, 5, 6]}
    return benchmark_result("math500", len(PROBLEMS), rows, classes)


def test_figures_by_level():
    figures = result()
    assert figures["accuracy"] == pytest.approx((3 / 4 + 0 + 1 / 4) / 3)
    # One of the four answers that tie in "c" is right.
    assert figures["maj@4"] == pytest.approx((1 + 0 + 1 / 4) / 3)
    assert figures["pass@4"] == pytest.approx(2 / 3)
    levels = {k: (v["problems"], v["accuracy"]) for k, v in figures["by_level"].items()}
    assert levels == {"1": (1, 0.75), "3": (2, 0.125)}
    for key in ("accuracy", "maj@4", "pass@2", "pass@4"):
        low, high = figures[f"{key}_interval"]
        assert 0 <= low <= figures[key] <= high <= 1


def test_published_rows():
    """The two rows that the paper is known to print, with their means."""
    of_paper = [row for row in report.PUBLISHED if "2508.08909" in row[2]]
    assert {name: scores for name, scores, *_ in of_paper} == {
        "Qwen2.5-Math-7B, no template": (20.0, 45.8, 69.0, 21.3, 34.7),
        "Compass-Thinker-7B": (40.0, 65.0, 82.9, 36.4, 43.5),
    }
    # The means that table 4 of arXiv 2503.20783 prints for its rows.
    printed = {
        "Qwen2.5-Math-7B, its template": 26.5,
        "SimpleRL-Zero-7B": 46.6,
        "PRIME-Zero-7B": 48.0,
        "OpenReasoner-Zero-7B": 43.0,
        "Oat-Zero-7B": 51.4,
        "Qwen2.5-Math-7B-Instruct": 45.1,
    }
    for name, scores, source, _ in report.PUBLISHED:
        if "table 4" in source:
            assert sum(scores) / 5 == pytest.approx(printed.pop(name), abs=0.07)
    assert not printed


def test_the_mean_needs_all_five():
    five = {name: {"accuracy": 0.1 * i} for i, name in enumerate(report.FIVE)}
    assert average_of_five(five) == pytest.approx(0.2)
    del five["amc83"]
    assert average_of_five(five) is None


def test_markdown_has_the_row_and_the_published_ones():
    figures = result()
    results = {
        "model": "mine",
        "benchmarks": {"math500": figures, "own": figures | {"title": "own"}},
        "verifier": "abc",
        "reward": "verifier",
        "conditions": {
            "drawing": {"template": "Q|A {problem}", "samples": 4, "temperature": 0.6}
        },
    }

    def table(results):
        return markdown(results["model"], report.tables(results))

    lines = table(results).splitlines()
    (own,) = (line for line in lines if line.startswith("| mine"))
    own = [cell.strip() for cell in own.strip("|").split("|")]
    assert own[1] == "avg@4 at T=0.6" and own[4].startswith("33.3 [")
    assert own[2] == own[7] == ""
    compass = next(line for line in lines if line.startswith("| Compass-Thinker-7B"))
    assert "| not stated | 40.0 | 65.0 | 82.9 | 36.4 | 43.5 | 53.6" in compass
    # A warning that sampled figures are compared with greedy ones.
    assert any("this evaluation: avg@4 at T=0.6." in line for line in lines)
    greedy = results | {"conditions": {"drawing": {"samples": 1, "temperature": 0.0}}}
    assert "this evaluation: greedy." in table(greedy)
    assert any(line.startswith("| own | 3 of 3 | 4 | 33.3 [") for line in lines)
    assert "| template | `Q\\|A {problem}` |" in lines
    # The rows of each table have the cells of its header.
    for above, below in zip(lines, lines[1:], strict=False):
        if above.startswith("|") and below.startswith("|"):
            cells = [line.replace("\\|", "").count("|") for line in (above, below)]
            assert cells[0] == cells[1]


# -- the page, with hostile texts ------------------------------------------------------

NASTY = "</script><script>document.title='owned'</script><!-- \u2028 \\u003c é 你好"


def evaluation():
    asked = [NASTY if i == 7 else f"What is {i}+{i}?" for i in range(12)]
    golds = [(str(2 * i), "x") if i == 3 else (str(2 * i),) for i in range(12)]
    problems = [
        Problem(id=f"p{i}", problem=text, answers=gold, level=1 + i % 3)
        for i, (text, gold) in enumerate(zip(asked, golds, strict=True))
    ]

    def verdict(i, right):
        answer = None if i == 4 else f"{i}"
        return Verdict(right, answer, "text" if right else "different")

    scored = [
        Scored(
            drawn=SampledCompletion(
                id=p.id,
                sample=j,
                completion=NASTY if (i, j) == (7, 1) else f"needle{i}-{j} " + "so " * i,
                tokens=10 * (12 - i) + j,
                finish_reason="length" if i == 5 else "stop",
            ),
            problem=p,
            verdict=verdict(i, j < i % 4),
        )
        for i, p in enumerate(problems)
        for j in range(3)
    ]
    classes = {p.id: [0, 1, 2] for p in problems}
    results = {
        "model": "runs/q <b>",
        "benchmarks": {
            "math500": benchmark_result("math500", 12, scored, classes),
            "own": benchmark_result("own", 2, scored[:6], classes),
        },
        "average_of_five": None,
        "verifier": "abc123",
        "conditions": {"drawing": {"template": "none", "temperature": 0.0}},
    }
    return results, {"math500": scored, "own": scored[:6]}


def test_the_page_of_an_evaluation():
    text = page("q", completions(*evaluation()))
    assert "<script" not in text
    assert "&lt;script&gt;document.title=&#39;owned&#39;" in text and "你好" in text
    assert text.count('class="dot"') == 2  # a benchmark each
    assert 'id="math500/p3"' in text
    assert text.count("<summary>p") == 14  # twelve problems, and two of them again
    assert "p3: 3 of 3 right, level 1" in text and "Gold: 6 or x" in text
    assert text.count("needle3-") == 3
    for kind, count in (("solved", 3), ("unsolved", 4), ("mixed", 7), ("truncated", 1)):
        assert text.count(f"k-{kind} ") + text.count(f'k-{kind}"') == count


def test_first_samples_only_where_all_would_be_too_long():
    text = page("q", completions(*evaluation(), max_characters=1000))
    assert "Only the first 2 completions of each problem are shown." in text
    assert "needle3-1" in text and "needle3-2" not in text

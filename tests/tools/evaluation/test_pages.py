"""Pages of evaluations, with hostile texts."""

from rl.evaluate import SampledCompletion, Scored
from rl.types import Problem
from rl.verifier import Verdict
from tools.evaluation.pages import results_page
from tools.evaluation.report import benchmark_result

NASTY = "</script><script>document.title='owned'</script><!-- \u2028 \\u003c é 你好"


def evaluation():
    problems = [
        Problem(
            id=f"p{i}",
            problem=NASTY if i == 7 else f"What is {i}+{i}?",
            answers=(str(2 * i), "x") if i == 3 else (str(2 * i),),
            level=1 + i % 3,
        )
        for i in range(12)
    ]
    scored = [
        Scored(
            drawn=SampledCompletion(
                id=p.id,
                sample=j,
                completion=NASTY if (i, j) == (7, 1) else f"needle{i}-{j} " + "so " * i,
                tokens=10 * (12 - i) + j,
                finish_reason="length" if i == 5 else "stop",
            ),
            verdict=Verdict(
                j < i % 4,
                None if i == 4 else f"{i}",
                "text" if j < i % 4 else "different",
            ),
        )
        for i, p in enumerate(problems)
        for j in range(3)
    ]
    classes = {p.id: [0, 1, 2] for p in problems}
    results = {
        "model": "runs/q <b>",
        "benchmarks": {
            "math500": benchmark_result("math500", problems, scored, classes),
            "own": benchmark_result("own", problems[:2], scored[:6], classes),
        },
        "average_of_five": None,
        "verifier": "abc123",
        "conditions": {"drawing": {"template": "none", "temperature": 0.0}},
    }
    by_name = {"math500": problems, "own": problems[:2]}
    return results, by_name, {"math500": scored, "own": scored[:6]}


def test_the_page_of_an_evaluation():
    text = results_page(*evaluation())
    assert "<title>Evaluation of runs/q &lt;b&gt;</title>" in text
    assert "<script" not in text
    assert "&lt;script&gt;document.title=&#x27;owned&#x27;" in text and "你好" in text
    assert text.count('class="dot"') == 2  # a benchmark each
    assert "<td>Compass-Thinker-7B</td>" in text and 'id="math500/p3"' in text
    assert text.count("<summary>p") == 14  # twelve problems, and two of them again
    assert "p3: 3 of 3 right, level 1" in text and "Gold: 6 or x" in text
    assert text.count("needle3-") == 3
    for kind, count in (("solved", 3), ("unsolved", 4), ("mixed", 7), ("truncated", 1)):
        assert text.count(f"k-{kind} ") + text.count(f'k-{kind}"') == count


def test_first_samples_only_where_all_would_be_too_long():
    text = results_page(*evaluation(), max_characters=1000)
    assert "Only the first 2 completions of each problem are shown." in text
    assert "needle3-1" in text and "needle3-2" not in text

"""Pages of evaluations and comparisons, with hostile texts and flipped problems."""

import json

import pytest

from rl.evaluate import SampledCompletion, Scored
from rl.types import Problem
from rl.verifier import Verdict
from tools.evaluation.compare import compare
from tools.evaluation.pages import compare_page, results_page
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
    # The model and all eight published ones; then levels and k samples.
    first = text[text.index("<figure") :].partition("</figure>")[0]
    assert first.count('class="dot"') == 9
    assert text.count("<summary>p") == 14  # twelve problems, and two of them again
    assert "p3: 3 of 3 right, level 1" in text and "Gold: 6 or x" in text
    assert text.count("needle3-") == 3
    for kind, count in (("solved", 3), ("unsolved", 4), ("mixed", 7), ("truncated", 1)):
        assert text.count(f"k-{kind} ") + text.count(f'k-{kind}"') == count


def test_first_samples_only_where_all_would_be_too_long():
    text = results_page(*evaluation(), max_characters=1000)
    assert "The first 2 of each problem are here." in text
    assert "needle3-1" in text and "needle3-2" not in text


PROBLEMS = [
    Problem(id="up", problem=r"What is $\frac{1}{2}+\frac12$?", answers=("1",)),
    Problem(id="down", problem="What is <b>2</b>+2?", answers=("4",)),
    Problem(id="same", problem="What is " + "9" * 300 + "?", answers=(r"\frac{9}{2}",)),
]


def evaluated(folder, answers):
    """Writes `{id: [(answer, class, right), ...]}` as an evaluation would."""
    folder.mkdir()
    completions, verdicts = [], []
    for id, samples in answers.items():
        for i, (answer, kind, right) in enumerate(samples):
            row = {"benchmark": "own", "id": id, "sample": i}
            text = f"Thus $x^2$ of {folder.name}, \\boxed{{{answer}}}"
            completions.append(row | {"completion": text})
            judged = {"answer": answer, "class": kind, "correct": right}
            verdicts.append(row | judged)
    for name, rows in (("completions", completions), ("verdicts", verdicts)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    drawing = {"samples": 3, "temperature": 1.0, "top_p": 1.0}
    (folder / "conditions.json").write_text(json.dumps({"drawing": drawing}))
    return folder


@pytest.fixture
def compared(tmp_path):
    right = [("1", 0, True)] * 3
    wrong = [("5", 1, False), ("5.0", 1, False), ("6", 2, False)]
    none = [(None, None, False)] * 3
    first = {"up": wrong, "down": right, "same": none}
    second = {"up": right, "down": wrong, "same": wrong}
    arms = [
        [evaluated(tmp_path / "first", first)],
        [evaluated(tmp_path / "second", second)],
    ]
    return compare_page(compare(arms), arms, {"own": PROBLEMS})


def test_flips_stand_side_by_side_and_can_be_linked_to(compared):
    words = ("Lost (1)", "Gained (1)", "No flip (1)")
    lost, gained, alike = (compared.index(word) for word in words)
    places = [compared.index(f'id="own/{id}"') for id in ("down", "up", "same")]
    assert lost < places[0] < gained < places[1] < alike < places[2]
    assert 'href="#own/up"' in compared
    up = compared[places[1] : alike]
    # Three completions of one arm in two classes of answers, those of the other in one.
    assert [up.count(f">{n} × ") for n in (1, 2, 3)] == [1, 1, 1]
    # A completion of each class; none where nothing flipped.
    assert up.count("Thus $x^2$") == 3
    assert "Thus $x^2$" not in compared[places[2] :]
    assert "&lt;b&gt;2&lt;/b&gt;" in compared and "<b>2" not in compared
    assert "<script" not in compared and "these checkpoints" in compared

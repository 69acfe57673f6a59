"""The page of a comparison, and what a narrow browser makes of it."""

import json

import pytest

from rl.types import Problem
from tests.tools.evaluation.test_page import browser  # noqa: F401
from tools.evaluation.compare import compare
from tools.evaluation.compare_page import compare_page

PROBLEMS = [
    Problem(id="up", problem=r"What is $\frac{1}{2}+\frac12$?", answers=("1",)),
    Problem(id="down", problem="What is <b>2</b>+2?", answers=("4",)),
    Problem(id="same", problem="What is " + "9" * 300 + "?", answers=(r"\frac{9}{2}",)),
]


def evaluated(folder, answers, temperature=1.0):
    """Keeps `{id: [(answer, class, right), ...]}` as an evaluation would."""
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
    drawing = {"samples": 3, "temperature": temperature, "top_p": 1.0}
    (folder / "conditions.json").write_text(json.dumps({"drawing": drawing}))
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    right = [("1", 0, True)] * 3
    wrong = [("5", 1, False), ("5.0", 1, False), ("6", 2, False)]
    first = evaluated(
        root / "first", {"up": wrong, "down": right, "same": [(None, None, False)] * 3}
    )
    second = evaluated(root / "second", {"up": right, "down": wrong, "same": wrong})
    arms = [[first], [second]]
    return compare_page(compare(arms), arms, {"own": PROBLEMS})


def test_flips_stand_side_by_side_and_can_be_linked_to(compared):
    lost, gained, alike = (
        compared.index(word) for word in ("Lost (1)", "Gained (1)", "No flip (1)")
    )
    places = [compared.index(f'id="own/{id}"') for id in ("down", "up", "same")]
    assert lost < places[0] < gained < places[1] < alike < places[2]
    assert 'href="#own/up"' in compared
    up = compared[places[1] : alike]
    # Three completions of one arm in two classes of answers, those of the other in one.
    assert [up.count(f">{n} ×<") for n in (1, 2, 3)] == [1, 1, 1]
    # A completion of each class, its formula rendered; none where nothing flipped.
    assert up.count("<msup>") == 3 and "<mfrac>" in up
    assert "<msup>" not in compared[places[2] :]
    assert "&lt;b&gt;2&lt;/b&gt;" in compared and "<b>2" not in compared
    assert "<script" not in compared


def test_it_reads_at_400_pixels(compared, browser, tmp_path):  # noqa: F811
    file = tmp_path / "compare.html"
    file.write_text(compared, encoding="utf-8")
    browser.set_window_size(400, 900)
    try:
        browser.get(file.as_uri() + "#own/up")
        width = browser.execute_script("return innerWidth")
        sideways = "return document.documentElement.scrollWidth"
        assert browser.execute_script(sideways) <= width
        tops = [
            arm.location["y"]
            for arm in browser.find_elements("css selector", "#own\\/up .beside > div")
        ]
        assert len(tops) == 2 and tops[0] < tops[1]  # below each other
        assert browser.get_log("browser") == []
    finally:
        browser.set_window_size(1280, 1600)

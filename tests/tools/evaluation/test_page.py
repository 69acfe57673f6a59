"""The page in a real browser: Debian's chromium and chromium-driver."""

import json
import shutil

import pytest

from rl.evaluate import Drawn, Scored
from rl.types import Problem
from rl.verifier import Verdict
from tools.evaluation.page import page
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
            drawn=Drawn(
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
    problems = {"math500": problems, "own": problems[:2]}
    return results, problems, {"math500": scored, "own": scored[:6]}


@pytest.fixture(scope="module")
def browser():
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--window-size=1280,1600",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    yield window
    window.quit()


@pytest.fixture
def opened(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(*evaluation()), encoding="utf-8")
    browser.get(file.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def find(window, selector):
    return window.find_elements("css selector", selector)


def ids(window):
    return [row.text for row in find(window, "tr.problem td:first-child")]


def column(window, name):
    heads = [head.text.split()[0] for head in find(window, "#problems th")]
    find(window, "#problems th")[heads.index(name)].click()
    return ids(window)


def choose(window, control, value):
    find(window, f"#{control} option[value='{value}']")[0].click()
    return ids(window)


def test_it_opens_whole_and_asks_the_network_for_nothing(opened):
    assert opened.title == "Evaluation of runs/q <b>"
    assert find(opened, "h1")[0].text == "runs/q <b>"
    assert len(find(opened, "#summary tr")) == 3
    captions = [c.text for c in find(opened, "figcaption")]
    assert captions == [
        "Accuracy beside published rows, %",
        "Accuracy by level (problems), %",
        "Of k samples, %",
        "Completions by length in tokens",
    ]
    # Ours, and all eight published ones.
    assert len(find(opened, "figure:first-child circle")) == 9
    loaded = opened.execute_script("return performance.getEntriesByType('resource')")
    assert loaded == []
    sideways = "return document.documentElement.scrollWidth - innerWidth"
    assert opened.execute_script(sideways) <= 0


def test_sorting(opened):
    # As text p10 and p11 would come before p2.
    assert ids(opened) == [f"p{i}" for i in range(12)]
    assert column(opened, "problem") == [f"p{i}" for i in reversed(range(12))]
    assert column(opened, "tokens") == [f"p{i}" for i in reversed(range(12))]
    rights = column(opened, "right")
    assert rights[:3] == ["p0", "p4", "p8"]
    assert column(opened, "right")[:3] == ["p3", "p7", "p11"]


def test_filters(opened):
    assert choose(opened, "verdict", "right") == ["p3", "p7", "p11"]
    assert choose(opened, "verdict", "mixed") == ["p1", "p2", "p5", "p6", "p9", "p10"]
    assert choose(opened, "level", "3") == ["p2", "p5"]
    assert find(opened, "#shown")[0].text == "2 of 12 problems"
    assert choose(opened, "level", "") and choose(opened, "verdict", "silent") == ["p4"]
    assert choose(opened, "verdict", "truncated") == ["p5"]
    choose(opened, "verdict", "")
    search = find(opened, "#search")[0]
    search.send_keys("NEEDLE9-2")
    assert ids(opened) == ["p9"]
    search.clear()
    search.send_keys("你好")
    assert ids(opened) == ["p7"]


def test_completions_are_shown_as_text(opened):
    find(opened, "tr.problem")[7].click()
    texts = [pre.get_property("textContent") for pre in find(opened, "tr.detail pre")]
    assert texts[0] == NASTY and texts[2] == NASTY and texts[1].startswith("needle7-0")
    # p7 has three right samples, p0 none.
    verdicts = "tr.detail .verdict"
    assert [v.text for v in find(opened, verdicts)] == ["right"] * 3
    find(opened, "tr.problem")[7].click()
    assert not find(opened, "tr.detail")
    find(opened, "tr.problem")[3].click()
    assert "6 or x" in find(opened, "tr.detail .facts")[0].text


def test_another_benchmark(opened):
    find(opened, "nav button")[1].click()
    assert ids(opened) == ["p0", "p1"]
    assert find(opened, "figcaption")[0].text == "Accuracy, %"
    assert len(find(opened, "figure:first-child circle")) == 1


def test_first_samples_only_where_all_would_be_too_long():
    results, problems, scored = evaluation()
    text = page(results, problems, scored, max_characters=1000)
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    assert data["embedded"] == 2
    samples = data["benchmarks"]["math500"]["problems"][0]["samples"]
    assert [s["completion"] is None for s in samples] == [False, False, True]
    assert (
        json.loads(
            page(results, problems, scored)
            .split('type="application/json">')[1]
            .split("</script>")[0]
        )["embedded"]
        is None
    )

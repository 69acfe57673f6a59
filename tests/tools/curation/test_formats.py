"""Ten public sets by their real columns: each one command, no column lost."""

import json

import pytest

from tests.tools.curation.test_sources import write
from tools.curation.formats import find_format, parse_fields
from tools.curation.repair import with_answer
from tools.curation.sources import Source, read

ASKED = "What is {i} plus seven, and is it more than the number of a week's days?"
DAPO = (
    "Solve the following math problem step by step. The last line of your response"
    " should be of the form Answer: $Answer (without quotes) where $Answer is the"
    " answer to the problem.\n\n{}\n\nRemember to put your answer on its own line after"
    ' "Answer:".'
)


def deepscaler(i, ask, gold):
    return {"problem": ask, "answer": gold, "solution": f"It is \\boxed{{{gold}}}."}


def big_math(i, ask, gold):
    return {
        "problem": ask, "answer": gold, "source": "orca_math",
        "domain": ["Mathematics -> Algebra -> Other"], "llama8b_solve_rate": i / 64,
    }  # fmt: skip


def verl(name, ask, gold, **extra):
    row = {"data_source": name, "prompt": [{"content": ask, "role": "user"}]}
    row |= {"ability": "math", "extra_info": extra}
    return row | {"reward_model": {"ground_truth": gold, "style": "rule"}}


def dapo(i, ask, gold):
    index = f"9a9b6eb4-a1cb-49d1-8c1e-62eaf2f7407{i}"
    return verl("math_dapo", DAPO.format(ask), gold, index=index)


def dapo_processed(i, ask, gold):
    raw = dapo(i, ask, gold)
    return raw | {"prompt": ask, "solution": gold, "source_prompt": raw["prompt"]}


def skywork(i, ask, gold):
    failures = {"1.5B": 16, "32B": 2, "7B": 9}
    failed = {f"DeepSeek-R1-Distill-Qwen-{k}": n for k, n in failures.items()}
    name, golds = "train-math-numinamath1.5_olympiads", json.dumps([gold])
    return verl(name, ask, golds, index=i, model_difficulty=failed)


def guru(i, ask, gold):
    rates = {"qwen2.5_7b_pass_rate": 0.0625, "qwen3_30b_pass_rate": i / 16}
    name = "math__merged_deduped_dapo_or1_dataset"
    return verl(name, ask, gold, index=i, split="train", **rates)


def open_reasoner_zero(i, ask, gold):
    return [
        {"from": "human", "value": ask},
        {"from": "assistant", "ground_truth": {"value": gold}},
    ]


def numina(i, ask, gold):
    return {
        "problem": ask, "solution": f"We add them: {gold}.",
        "answer": gold if i else "proof", "problem_type": "Algebra",
        "question_type": "math-word-problem", "problem_is_valid": "Yes",
        "solution_is_valid": "Yes", "source": "olympiads", "synthetic": False,
    }  # fmt: skip


def math(i, ask, gold):
    solution = f"Counting on gives $\\boxed{{{gold}}}$."
    level = "Level 3" if i else "Level ?"
    return dict(problem=ask, level=level, type="Prealgebra", solution=solution)


def gsm8k(i, ask, gold):
    solution = f"It is {i}+7 = <<{i}+7={gold}>>{gold}.\n#### {gold}"
    return {"question": ask, "answer": solution}


RAW = {"ability", "extra_info", "reward_model"}
OF_NUMINA = {"problem_type", "question_type", "synthetic"}
OF_NUMINA |= {"problem_is_valid", "solution_is_valid"}
# The columns of a row that stay in `meta`.
FORMATS = {
    deepscaler: (".json", "problems", set()),
    big_math: (".parquet", "problems", {"domain", "llama8b_solve_rate"}),
    dapo: (".parquet", "chat", {"ability", "extra_info"}),
    dapo_processed: (".parquet", "dapo_processed", RAW | {"source_prompt"}),
    skywork: (".parquet", "skywork_or1", {"ability", "extra_info"}),
    guru: (".parquet", "chat", {"ability", "extra_info"}),
    open_reasoner_zero: (".json", "open_reasoner_zero", set()),
    numina: (".parquet", "problems", OF_NUMINA),
    math: (".jsonl", "problems", {"type"}),
    gsm8k: (".jsonl", "gsm8k", set()),
}


def ten_rows(folder, made):
    """A file of ten rows as the set has them."""
    suffix = FORMATS[made][0]
    rows = [made(i, ASKED.format(i=i), str(i + 7)) for i in range(10)]
    path = folder / f"{made.__name__}{suffix}"
    if suffix == ".jsonl":
        return write(path, *rows)
    if suffix == ".json":
        path.write_text(json.dumps(rows))
        return path
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("made", FORMATS, ids=lambda made: made.__name__)
def test_a_public_set_is_read_as_it_is(tmp_path, made):
    source = Source(path=str(ten_rows(tmp_path, made)))
    rows = [with_answer(row) for row in read(source)]
    assert source.format == FORMATS[made][1]
    assert [row.problem for row in rows] == [ASKED.format(i=i) for i in range(10)]
    golds = [(str(i + 7),) for i in range(10)]
    if made is numina:
        golds[0] = ()  # its "proof" is not an answer
    assert [row.answers for row in rows] == golds
    assert {frozenset(row.meta) for row in rows} == {frozenset(FORMATS[made][2])}


def test_what_a_column_says_is_used_or_kept(tmp_path):
    def rows(made):
        return list(read(Source(path=str(ten_rows(tmp_path, made)))))

    assert [row.level for row in rows(math)] == [None] + [3] * 9
    assert rows(big_math)[6].solve_rate == 6 / 64
    assert rows(guru)[6].solve_rate == 1 / 16
    assert rows(numina)[1].source == "olympiads"
    assert rows(gsm8k)[2].solution.startswith("It is 2+7")
    extra = skywork(3, "", "")["extra_info"]
    assert rows(skywork)[3].meta == {"ability": "math", "extra_info": extra}


def test_an_object_may_be_text_in_json(tmp_path):
    row = skywork(3, ASKED, "7")
    texts = {name: json.dumps(row[name]) for name in ("prompt", "reward_model")}
    (read_row,) = read(Source(path=str(write(tmp_path / "rows.jsonl", row | texts))))
    assert (read_row.problem, read_row.answers) == (ASKED, ("7",))


def test_a_set_without_answers_is_none_that_is_known():
    row = {"problem": "Find $x$.", "expected_answer": "8"}
    with pytest.raises(ValueError, match="columns: expected_answer, problem"):
        find_format("file row 1", row)


def test_fields_are_paths(tmp_path):
    row = {"chat": [{"ask": ASKED}], "gold": {"text": ["8"]}, "tag": {"a": None}}
    path = write(tmp_path / "rows.jsonl", row)
    fields = parse_fields("problem=chat[0].ask, answer=gold.text[0]")
    (read_row,) = read(Source(path=str(path), fields=fields))
    assert (read_row.problem, read_row.answers) == (ASKED, ("8",))
    assert read_row.meta == {"tag": {"a": None}}


@pytest.mark.failure(33)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "no known format (columns: gold, task)"),
        ("answer=gold", "no field 'problem' (columns: gold, task)"),
        ("problem=task,answer=gold.text", "no field 'gold.text' (columns: gold, task)"),
        ("problem=task,answer=gold[", "answer='gold[': must be a path such as a.b[0]"),
        ("question=task", "question='task': unknown field; use id, problem"),
        ("problem", "'problem': must be FIELD=PATH"),
    ],
)
def test_an_unknown_format_is_one_line(tmp_path, fields, message):
    path = write(tmp_path / "rows.jsonl", {"task": ASKED, "gold": "8"})
    with pytest.raises(ValueError) as error:
        read(Source(path=str(path), fields=parse_fields(fields)))
    assert message in str(error.value) and "\n" not in str(error.value)

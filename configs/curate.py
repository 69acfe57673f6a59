"""Curation of the open mathematics sets into problems for reinforcement learning.

    python -m tools.curate --config=configs/curate.py --out DIR

About 68 thousand rows in, 46 thousand problems out, 31 thousand of them with levels, in
two minutes on two cores. The files lie in the folder that the environment names as
SHARED_DATA, by default ../shared/data. Read DIR/report.html. Another set:
`--input A.json,B.parquet`, or your own copy of this file.

Ours, not the paper's (arXiv 2508.08909 says only that 30 thousand verifiable problems
were kept): every threshold below.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The sources, in order of preference among duplicates, and what is dropped."""
    data = "${SHARED_DATA}"
    train = f"{data}/train"
    return ConfigDict(
        {
            # JSONL, JSON, Parquet, or hf://ORG/NAME/FILE, in a known format or with
            # `fields` such as {"problem": "prompt[0].content", "answer": "gold"};
            # `level_source` names the scale of its levels.
            "sources": (
                {
                    "path": f"{train}/deepscaler_levels.jsonl",
                    "level_source": "deepscaler",
                },
                {"path": f"{train}/math12k.jsonl", "level_source": "math"},
                {"path": f"{train}/aime_1983_2023.jsonl"},
                {"path": f"{train}/limr_1389.jsonl"},
                {"path": f"{train}/oneshot_dsr_sub_1209.jsonl"},
                {"path": f"{train}/gsm8k_train.jsonl"},
                {"path": f"{data}/raw/raw_mixed.jsonl"},
                {"path": f"{data}/raw/bigmath_hard_to_verify.jsonl"},
            ),
            # No kept problem may match one of these: names, .jsonl files or hf://.
            "evaluation": (
                "aime2024",
                "amc83",
                "math500",
                "minerva272",
                "olympiadbench675",
                "gsm8k_test",
            ),
            "data_dir": f"{data}/eval",
            "screen": {
                # "value": the question for the option's value; "drop": no choices.
                "multiple_choice": "value",
                # Rows solved less or more often go. 0.01 asks that one graded
                # completion verified (see tools.grade).
                "min_solve_rate": 0.0,
                "max_solve_rate": 1.0,
                # What a grading says of a gold counts from this many completions on,
                # where this share of them agrees on another answer.
                "min_grading": 4,
                "max_disagreement": 0.75,
                # Of a problem; about 3.5 characters make a token.
                "min_chars": 16,
                "max_chars": 2500,
                "max_answer_chars": 120,
            },
            # Jaccard similarity of token 3-grams.
            "near": {
                # duplicates, whatever they ask
                "threshold": 0.8,
                # enough where numbers and answers agree as well
                "same_answer_threshold": 0.6,
                # from here on, two answers to the same numbers contradict each other
                "conflict_threshold": 0.9,
                # against evaluation problems
                "contamination_threshold": 0.8,
            },
            # "drop" all copies of a problem whose answers disagree, or let the
            # "majority" decide: of 23 that it decided, 7 were read and found wrong.
            "conflicts": "drop",
            # The scale that levels are kept on; "auto": the one most rows have.
            "levels": "auto",
            # Rows of another scale get a level on it by way of the rows that both have
            # graded, where there are so many of these; 0: they get none.
            "common_rows": 0,
            # Seconds that two answers may take to compare, and processes.
            "answer_timeout": 10.0,
            "workers": 2,
        }
    )

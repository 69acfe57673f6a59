"""Curation of the open mathematics sets into problems for reinforcement learning.

    python -m tools.curate --config=configs/curate.py --out DIR
    python -m tools.curate --config=configs/curate.py:recipe --out DIR

The first curates the files of SHARED_DATA (by default ../shared/data): 67 thousand rows
in two minutes on two cores. Hardly any of them has evidence, so the others stay.
The second makes the problems of `compass_thinker_7b` from public sets on the Hugging
Face Hub whose columns say who solved a row, and keeps only rows with such evidence.
Read DIR/report.html. Another set: `--input A.json,B.parquet`, or a copy of this file.

The paper (arXiv 2508.08909) says only that 30 thousand verifiable problems were kept:
every threshold below is a choice of this project.
"""

from ml_collections import ConfigDict

# Big-Math asks for an account that has accepted its terms.
RECIPE = (
    {"path": "hf://LLM360/guru-RL-92k/train/math__combined_54.4k.parquet"},
    {"path": "hf://SynthLabsAI/Big-Math-RL-Verified/data/train-00000-of-00001.parquet"},
    {"path": "hf://Skywork/Skywork-OR1-RL-Data/data/math-00000-of-00001.parquet"},
)


def get_config(sets: str = "shared") -> ConfigDict:
    """Returns the sources, in order of preference among duplicates, and the rules.

    `sets` is "shared" (files of SHARED_DATA) or "recipe" (sets on the hub).
    """
    if sets not in ("shared", "recipe"):
        raise ValueError(f"configs/curate.py:{sets}: must be shared or recipe")
    data = "${SHARED_DATA}"
    train = f"{data}/train"
    c = ConfigDict(
        {
            # JSONL, JSON, Parquet, or hf://ORG/NAME/FILE, in a known format or with
            # `fields` such as {"problem": "prompt[0].content", "answer": "gold"};
            # `level_source` names the scale of its levels, `evidence` what the set's
            # documentation says of every row, `origin` where its golds were made: two
            # origins that state the same answer are evidence.
            "sources": (
                {
                    "path": f"{train}/deepscaler_levels.jsonl",
                    "level_source": "deepscaler",
                },
                {"path": f"{train}/math12k.jsonl", "level_source": "math"},
                {"path": f"{train}/aime_1983_2023.jsonl"},
                {"path": f"{train}/limr_1389.jsonl"},
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
            # What becomes of rows that no independent solver is known to have solved.
            # "required": they go. "preferred": they stay, those that were tried in
            # vain as the hardest level, and of copies that contradict each other
            # the one with evidence stays. "off": evidence decides nothing.
            "evidence": "preferred",
            # Evidence is the lower end of the 95% interval of a solver's rate: 12 of 16
            # solved is 0.51, 40 of 64 is 0.50, 4 of 4 is 0.51. Every wrong gold that a
            # reader found among 229 of GURU had been solved in at most 8 of 16.
            "min_evidence": 0.5,
            # JSONL of golds checked by hand, {"source": ..., "wrong": true} each: the
            # report gives the share of wrong ones by source.
            "readings": "",
            "workers": 2,
        }
    )
    if sets == "recipe":
        c.sources, c.evidence = RECIPE, "required"
    return c

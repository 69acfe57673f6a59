"""Curates open mathematics data sets into problems for reinforcement learning.

    python -m tools.curate --config=configs/curate.py --out DIR
    python -m tools.curate --config=configs/curate.py:recipe --out DIR

The first command curates the files in SHARED_DATA (by default ../shared/data): 67
thousand rows in two minutes on two cores. Few of these rows have evidence that the
answer is right, so rows without evidence are retained.
The second command makes the problems for `compass_thinker_7b` from public sets on the
Hugging Face Hub. Their columns record solve rates of models; only rows with such
evidence are retained.
The report is DIR/report.html. For other data, use `--input A.json,B.parquet` or a copy
of this file.

The paper (arXiv 2508.08909) reports 30 thousand verifiable problems but no thresholds:
all thresholds below are our choice.
"""

from ml_collections import ConfigDict

# Big-Math needs a Hugging Face account that has accepted the terms of the data set.
RECIPE = (
    {"path": "hf://LLM360/guru-RL-92k/train/math__combined_54.4k.parquet"},
    {"path": "hf://SynthLabsAI/Big-Math-RL-Verified/data/train-00000-of-00001.parquet"},
    {"path": "hf://Skywork/Skywork-OR1-RL-Data/data/math-00000-of-00001.parquet"},
)


def get_config(sets: str = "shared") -> ConfigDict:
    """Returns the sources and rules of a curation; `sets` is "shared" or "recipe"."""
    if sets not in ("shared", "recipe"):
        raise ValueError(f"configs/curate.py:{sets}: use :shared or :recipe instead")
    data = "${SHARED_DATA}"
    train = f"{data}/train"
    c = ConfigDict(
        {
            # Files to curate, with the fields of `Source` in tools/curation/sources.py;
            # of duplicate problems, the one listed first is retained.
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
            # Evaluation sets, as names, .jsonl files or hf://; problems that match one
            # of their problems are dropped.
            "evaluation": tuple(
                "aime2024 amc83 math500 minerva272 olympiadbench675 gsm8k_test".split()
            ),
            "data_dir": f"{data}/eval",
            # Evidence is a record that independent solvers found the answer. "required"
            # drops rows without evidence. "preferred" retains them, as the hardest
            # level if solvers failed; of duplicates with different answers it retains
            # the one with evidence. "off" ignores evidence.
            "evidence": "preferred",
            # Smallest lower bound of the 95% interval of a solve rate that is evidence.
            # It is 0.51 for 12 of 16 solved, 0.50 for 40 of 64, 0.51 for 4 of 4. In 229
            # rows of GURU, each wrong answer had been "solved" at most 8 of 16 times.
            "min_evidence": 0.5,
            # JSONL file of answers checked by hand, {"source": ..., "wrong": true} per
            # row; the report shows the share of wrong answers by source.
            "readings": "",
            "workers": 2,  # processes
        }
    )
    if sets == "recipe":
        c.sources, c.evidence = RECIPE, "required"
    return c

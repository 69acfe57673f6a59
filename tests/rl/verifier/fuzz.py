"""Coverage-guided fuzzing of the verifier.

    pip install atheris
    python -m tests.rl.verifier.fuzz CORPUS_DIR -max_total_time=600 -max_len=400

Any text must be judged without an exception and within a second, alike in both
directions, and must equal itself. A line feed splits the input into two answers.
"""

import sys
import time

import atheris

with atheris.instrument_imports(include=["rl.verifier"]):
    from rl.verifier.equal import equivalence
    from rl.verifier.parse import extract
    from tests.rl.verifier import hostile

SECONDS_PER_ITEM = 1.0


def judge(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    left, _, right = text.partition("\n")
    started = time.process_time()
    forth = equivalence.is_equivalent(left, right)
    seconds = time.process_time() - started
    if seconds > SECONDS_PER_ITEM:
        raise RuntimeError(f"took {seconds:.1f} s")
    if forth != equivalence.is_equivalent(right, left):
        raise RuntimeError("is not symmetric")
    if equivalence.self_check(left) == "does not equal itself":
        raise RuntimeError("does not equal itself")
    extract.extract_answer(text)
    extract.extract_answer("\\boxed{" + text)


def main() -> None:
    arguments = sys.argv
    if len(arguments) > 1 and not arguments[1].startswith("-"):
        hostile.write_seeds(arguments[1])
    atheris.Setup(arguments, judge)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

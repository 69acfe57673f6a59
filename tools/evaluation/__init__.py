"""One evaluation as a folder: asked, kept, judged, reported, compared.

Enters: a model's folder, benchmarks, and the conditions of asking.
Leaves: DIR with completions, verdicts, scores with intervals, and a page.
Begin at `run`:

    run -> files -> report -> page
             |
             +----> compare

What is drawn and how it is scored is `rl.evaluate`, which training calls as well.
"""

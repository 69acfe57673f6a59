"""One evaluation as a folder: asked, kept, judged, reported, compared.

    run -> files -> report -> page
             |
             +----> compare

What is drawn and how it is scored is `rl.evaluate`, which training calls as well.
"""

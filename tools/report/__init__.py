"""What there is to see of runs, in one page.

Enters: workdirs, of runs that go on or have ended, as data.
Leaves: one HTML page.
Begin at `sections`; `reading` takes a workdir as it finds it.
"""

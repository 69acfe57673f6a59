"""Counts and tables of a run, without running it."""

from tools.curation.report import count, sections
from tools.curation.row import Row

STEPS = {"noise": {"not_text": "A link."}, "decontamination": {}, "duplicates": {}}


def test_many_sources_are_cut_and_all_of_them_counted():
    # Rows that name a source each, as they came: source i has i + 1 of them.
    rows = [
        Row(id=f"{i}-{n}", problem="?", source=f"s{i:02}", reasons={"not_text": "x"})
        for i in range(35)
        for n in range(i + 1)
    ]
    rows.append(Row(id="kept", problem="?", source="s34"))
    summary = count(rows, STEPS, 0.25, {}) | {"level_scale": "own", "linked_scales": {}}
    made = {table.title: table for table in sections(summary)}
    assert len(summary["by_source"]) == 35
    assert summary["by_source"]["s34"]["reasons"] == {"not_text": 35}
    shown = made["Sources"].rows
    assert (shown[0]["source"], shown[0]["rows"], shown[0]["kept"]) == ("s34", 36, 1)
    assert shown[0]["reasons"] == "not_text"
    assert [row["source"] for row in shown][-1] == "s05" and len(shown) == 30
    assert made["Sources"].note == "5 smaller sources are in `summary.json`."

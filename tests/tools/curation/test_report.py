"""Counts and tables of a run, without running it."""

from tools.curation.report import count, sections
from tools.curation.row import Row
from tools.page import markdown

STEPS = {"noise": {"not_text": "A link."}, "decontamination": {}, "duplicates": {}}


def report(rows):
    summary = count(rows, STEPS, 0.25, {})
    summary |= {"level_scale": "own", "linked_scales": {}}
    return summary, {table.title: table for table in sections(summary)}


def test_many_sources_are_cut_and_all_of_them_counted():
    # Rows that name a source each, as they came: source i has i + 1 of them.
    rows = [
        Row(id=f"{i}-{n}", problem="?", source=f"s{i:02}", reasons={"not_text": "x"})
        for i in range(35)
        for n in range(i + 1)
    ]
    summary, made = report([*rows, Row(id="kept", problem="?", source="s34")])
    assert len(summary["by_source"]) == 35
    assert summary["by_source"]["s34"]["reasons"] == {"not_text": 35}
    shown = made["Sources"].rows
    assert (shown[0]["source"], shown[0]["rows"], shown[0]["kept"]) == ("s34", 36, 1)
    assert shown[0]["reasons"] == "not_text"
    assert [row["source"] for row in shown][-1] == "s05" and len(shown) == 30
    assert made["Sources"].note == "5 smaller sources are in `summary.json`."


def test_a_row_without_a_level_is_said_to_have_none():
    summary, made = report(
        [
            Row(id="a", problem="?", level=3, level_source="own"),
            Row(id="b", problem="?"),
        ]
    )
    assert summary["levels"] == {"3": 1, "no level": 1} and summary["with_level"] == 1
    assert "| no level | 1 |" in markdown("Report", made.values())
    assert "None" not in markdown("Report", made.values())

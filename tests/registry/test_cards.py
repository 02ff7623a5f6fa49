"""The model card leads to the decision, and fits where MLflow shows it."""

from tcl.registry.cards import LONGEST, model_card
from tcl.registry.versions import COMPARED_WITH, ModelVersion

TAGS = {
    "device": "dev",
    "target": '{"kind": "llvm", "mcpu": "znver4"}',
    "data_hash": "d41d8cd98f00b204e9800998.dir",
    "git_commit": "0123456789abcdef",
    "parent_version": "1",
    "tvm_version": "0.27.0",
    "feature_version": "1",
    "reason": "transfer beats training from scratch",
}
METRICS = {
    "top_1": 0.93,
    "top_5": 0.97,
    "top_1/conv2d": 0.94,
    "top_5/conv2d": 0.99,
    "records": 1200.0,
    "tasks": 12.0,
    "forgetting_old-board": 0.01,
}
CHAMPION = ModelVersion(
    "tcl-cost-dev",
    1,
    "dev",
    ("champion",),
    {**TAGS, "parent_version": "none"},
    {"top_1": 0.99, "top_5": 0.99, "records": 800.0, "tasks": 12.0},
    "run",
    0.0,
)


def rows(card: str) -> list[list[str]]:
    """Cells of all tables."""
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in card.splitlines() if "|" in line
    ]


def test_card_compares_on_the_same_programs_when_the_champion_was_judged_on_them():
    metrics = METRICS | {"champion/top_1": 0.9, "champion/top_5": 0.98, "champion/top_1/conv2d": 0.95}
    card = model_card("tcl-cost-dev", TAGS | {COMPARED_WITH: "1"}, metrics, {"epochs": 3}, CHAMPION)
    assert (
        "**Top-1 0.930, better than champion 1 with 0.900** (+0.030, on the same held-out programs)." in card
    )
    assert ["**all**", "0.930", "0.900", "+0.030", "0.970", "0.980", "-0.010"] in rows(card)
    assert ["conv2d", "0.940", "0.950", "-0.010", "0.990", "–", "–"] in rows(card)


def test_card_says_so_when_each_was_judged_on_programs_of_its_own():
    card = model_card("tcl-cost-dev", TAGS, METRICS, {}, CHAMPION)
    assert (
        "worse than champion 1 with 0.990** (-0.060, each on the programs held out from its own training)"
        in card
    )


def test_card_shows_forgetting_data_and_parent_beside_the_champions():
    found = rows(model_card("tcl-cost-dev", TAGS, METRICS, {}, CHAMPION))
    assert ["old-board", "-0.010"] in found
    assert ["data hash", "d41d8cd98f00", "the same"] in found
    assert ["records", "1200", "800"] in found
    assert ["parent version", "1", "none"] in found


def test_card_names_the_way_back_and_shows_plots():
    plots = {"top_k": "get-artifact?path=plots/top_k.png", "learning_curve_x": "unused.png"}
    card = model_card("tcl-cost-dev", TAGS, METRICS, {}, CHAMPION, plots)
    assert "give the alias to version 1 again" in card
    assert "![top_k](get-artifact?path=plots/top_k.png)" in card
    assert "unused.png" not in card


def test_card_without_champion_compares_nothing():
    card = model_card("tcl-cost-dev", TAGS, METRICS, {})
    assert "There is no champion" in card
    assert ["**all**", "0.930", "0.970"] in rows(card)


def test_card_keeps_the_decision_and_mlflows_limit_when_there_is_much_to_say():
    many = {f"top_{k}/kind{n}": 0.5 for n in range(200) for k in (1, 5)}
    card = model_card(
        "tcl-cost-dev", TAGS, METRICS | many, {f"option {n}": "x" * 50 for n in range(99)}, CHAMPION
    )
    assert len(card) <= LONGEST
    assert "## Challenger against champion" in card and "## Where it comes from" in card
    assert "189 more kinds are among the metrics of the run." in card


def test_card_keeps_its_tables_when_a_value_holds_a_bar():
    card = model_card("tcl-cost-dev", TAGS, METRICS, {"pattern": "a|b"})
    assert ["pattern", "a&#124;b"] in rows(card)

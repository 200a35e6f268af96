"""The names of all recipes, known without the recipes themselves."""

from tilth.limits import Choice

RECIPE = Choice(
    (
        "dino-table1", "dino-table2", "dino-table5", "paraphrase-fig1", "paraphrase-fig3",
        *(f"sentaugment-table{number}" for number in range(2, 11)),
    )
)  # fmt: skip

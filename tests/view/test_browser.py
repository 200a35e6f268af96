"""Each flow in a real browser, by keys alone, at two widths; no console error."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.augmented_run import write_run as write_augmented
from tests.tiny import salads, tiny_bank
from tests.view.pages import pairs, served, write_run
from tilth.models.classifier import new_classifier

BROWSER = shutil.which("chromium")
SHOTS = os.environ.get("TILTH_SCREENSHOTS")  # a folder, for who wants to look at them
AXE = os.environ.get("TILTH_AXE")  # axe.min.js of npm's axe-core

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", params=[1280, 390])
def tab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base: str
) -> Iterator[Any]:
    """Yield a page that has entered; console errors fail the test that made them."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    root = tmp_path_factory.mktemp("root")
    write_run(root / "pairs", pairs(130))
    write_augmented(root / "tagged", "tags")
    student = write_run(root / "student", command="train classifier", parts=1) / "model"
    new_classifier(base, kind="class", labels=["land", "water"], seed=3).save(student)
    tiny_bank(root / "corpus", salads(60), encoder="starter-static")
    with served(root) as (url, _), playwright.sync_playwright() as made:
        browser = made.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": request.param, "height": 844})
        page.problems = []
        page.on(
            "console",
            lambda said: (
                page.problems.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on("response", lambda answer: page.problems.append(f"{answer.status} {answer.url}")
                if answer.status >= 400 else None)  # fmt: skip
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.width = request.param
        page.goto(url)
        page.base = url.partition("/?")[0]
        yield page
        browser.close()


@pytest.fixture(autouse=True)
def _no_problem(tab: Any) -> Iterator[None]:
    tab.problems.clear()
    yield
    assert tab.problems == []


def look(tab: Any, name: str) -> None:
    """Check what holds of every page: nothing overflows; keep a picture, run axe where asked."""
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    if SHOTS:
        tab.screenshot(path=f"{SHOTS}/{name}-{tab.width}.png")
    if AXE:
        tab.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = tab.evaluate("axe.run()")["violations"]
        serious = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found
                   if one["impact"] in ("serious", "critical")]  # fmt: skip
        assert not serious, f"{name}: {serious}"


def test_browse_by_keys(tab: Any) -> None:
    tab.goto(tab.base)
    look(tab, "runs")
    tab.keyboard.press("Tab")  # to the skip link
    tab.keyboard.press("Enter")
    for _ in range(8):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "pairs":
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/rows?run=pairs")
    look(tab, "rows")
    assert tab.locator(".count b").inner_text() == "130 rows"
    tab.keyboard.press("n")
    tab.wait_for_url("**after=49*")
    tab.keyboard.press("/")
    tab.keyboard.type("number12*")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**q=number12*")
    assert tab.locator(".count b").inner_text() == "11 rows"
    tab.goto(f"{tab.base}/rows?run=pairs&label=0.5&similarity-min=0.3")
    look(tab, "filtered")
    if tab.width > 900:
        tab.locator(".bins a").first.focus()
        tab.keyboard.press("Enter")
        tab.wait_for_url("**-max=*")
    tab.goto(f"{tab.base}/row?run=pairs&row=4")
    look(tab, "row")
    tab.keyboard.press("n")
    tab.wait_for_url("**row=5")


@pytest.mark.parametrize(
    ("task", "keys"), [("class", "123"), ("grade", "052"), ("same meaning", "121")]
)
def test_annotate_by_keys(tab: Any, task: str, keys: str) -> None:
    tab.goto(f"{tab.base}/samples?run=pairs&state=kept")
    look(tab, "samples")
    name = f"{task} {tab.width}"
    tab.locator("[name=name]").fill(name)
    tab.locator("[name=task]").select_option(task)
    tab.locator("[name=count]").fill("4")
    tab.get_by_role("button", name="Draw the sample").click()
    tab.wait_for_url("**/annotate?**")
    tab.locator("[name=person]:focus").wait_for()
    tab.keyboard.type("Ann")  # the field has the focus
    look(tab, "person")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**person=Ann")
    look(tab, f"annotate-{task.replace(' ', '-')}")
    assert "label" not in tab.locator(".judge .whole").inner_text()  # blind
    for done, key in enumerate(keys):
        assert tab.locator(".done-bar b").inner_text() == str(done)
        with tab.expect_navigation():
            tab.keyboard.press(key)
    with tab.expect_navigation():
        tab.keyboard.press("u")
    assert tab.locator(".done-bar b").inner_text() == "2"
    tab.keyboard.press("f")
    tab.keyboard.press("e")
    tab.keyboard.type("odd 1")
    tab.keyboard.press("Escape")
    with tab.expect_navigation():
        tab.keyboard.press("2")
    with tab.expect_navigation():
        tab.keyboard.press("s")
    assert "no row left" in tab.locator("main").inner_text()
    tab.locator("a.button").click()
    tab.wait_for_url("**/results**")
    look(tab, f"results-{task.replace(' ', '-')}")
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Argilla").click()
    tab.locator("[type=file]").set_input_files(download.value.path())
    tab.get_by_role("button", name="Take in", exact=True).click()
    tab.get_by_text("3 answers are taken in").wait_for()
    tab.get_by_role("button", name="Data set with people's labels").click()
    tab.get_by_text(f"{task.replace(' ', '-')}-{tab.width}-corrected").wait_for()
    said = tab.locator("main").inner_text()
    assert "flagged: odd 1" in said
    assert "Ann" in said


def test_mark_spans_by_keys_and_by_finger(tab: Any) -> None:
    tab.goto(f"{tab.base}/samples?run=tagged")
    assert tab.locator("[name=task]").input_value() == "spans"
    assert tab.locator("[name=labels]").input_value() == "ANIMAL\nWATER"
    tab.locator("[name=name]").fill(f"spans {tab.width}")
    tab.locator("[name=count]").fill("3")
    tab.get_by_role("button", name="Draw the sample").click()
    tab.wait_for_url("**/annotate?**")
    tab.locator("[name=person]:focus").wait_for()
    tab.keyboard.type("Ann")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**person=Ann")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowRight")
    tab.keyboard.press("2")
    look(tab, "annotate-spans")
    words = tab.locator(".word")
    expected = f"WATER: {words.nth(1).inner_text()} {words.nth(2).inner_text()}"
    assert tab.locator(".spans-said").inner_text() == expected
    tab.keyboard.press("Backspace")
    assert tab.locator(".spans-said").inner_text() == "No span."
    words.nth(0).click()
    words.nth(1).click()
    tab.get_by_role("button", name="ANIMAL").click()
    assert tab.locator(".spans-said").inner_text().startswith("ANIMAL: ")
    tab.keyboard.press("Escape")
    with tab.expect_navigation():
        tab.locator("button[data-key=Enter]").click()
    with tab.expect_navigation():
        tab.keyboard.press("u")
    with tab.expect_navigation():
        tab.keyboard.press("Enter")
    assert tab.locator(".done-bar b").inner_text() == "1"


def test_rewrite_by_keys(tab: Any) -> None:
    tab.goto(tab.base)
    tab.get_by_role("link", name="try", exact=True).focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/try/rewrite")
    look(tab, "try-rewrite")
    tab.keyboard.press("e")
    tab.keyboard.type("The old ferry crosses the river twice a day.")
    tab.keyboard.press("Tab")  # leaving the text asks for a first time
    tab.locator("#result svg.plane, #result [role=alert]").wait_for(timeout=120_000)
    tab.keyboard.press("ArrowLeft")
    assert tab.locator(".slider output").first.inner_text() == "90"
    tab.get_by_text("Asked for meaning 90 to 95").first.wait_for(timeout=60_000)
    look(tab, "try-rewritten")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")  # sends the form
    tab.wait_for_url("**job=*")
    tab.get_by_text("Asked for meaning 90 to 95").first.wait_for(timeout=60_000)
    assert tab.locator("[name=meaning]").input_value() == "90"
    assert tab.locator("svg.plane .cell").count() == 48
    numbers = tab.locator("#result tbody th").all_inner_texts()
    assert numbers == [str(place + 1) for place in range(tab.locator("svg.plane .dot").count())]


def test_write_for_a_task_by_keys(tab: Any) -> None:
    tab.goto(f"{tab.base}/try/generate?begin=intents")
    tab.get_by_text("intents: single texts, 10 labels").wait_for()
    look(tab, "try-generate")
    tab.keyboard.press("e")
    tab.keyboard.press("Control+A")
    tab.keyboard.type("task_name: mine\nlabels:\n  a: [")
    tab.get_by_text("task:3: not YAML").wait_for()
    look(tab, "try-wrong-task")
    tab.goto(f"{tab.base}/try/generate")
    tab.locator("[name=attempts]").focus()
    tab.keyboard.press("Enter")
    tab.locator(".attempts").first.wait_for(timeout=120_000)
    look(tab, "try-generated")
    assert tab.locator(".attempts > li").count() == 9
    assert tab.locator(".tokens [title^='alpha 0']").count() > 0
    tab.locator("summary").last.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details[open] code").count() > 0


def test_search_as_one_types(tab: Any) -> None:
    tab.goto(f"{tab.base}/try/search")
    tab.locator("[name=query]:focus").wait_for()
    tab.keyboard.type("a dog near the river")
    tab.locator("#result tbody tr").first.wait_for(timeout=60_000)
    look(tab, "try-search")
    tab.get_by_text("20 sentences").wait_for(state="attached")
    before = tab.locator("#result tbody").inner_text()
    tab.keyboard.type(" sings two cats")
    tab.wait_for_function(
        "before => document.querySelector('#result tbody').innerText !== before", arg=before
    )
    assert "job=" not in tab.url


def test_label_by_keys(tab: Any) -> None:
    tab.goto(f"{tab.base}/try/label")
    look(tab, "try-label")
    tab.keyboard.press("e")
    tab.keyboard.type("the dog swims in the sea")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.locator("#result .tokens span").first.wait_for(timeout=60_000)
    look(tab, "try-labelled")
    assert tab.locator("#result .tokens span").count() == 6
    assert tab.locator("#result .claim").inner_text() in ("land", "water")

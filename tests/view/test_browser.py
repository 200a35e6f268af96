"""Each flow in a real browser, by keys alone, at two widths; no console error."""

import os
import shutil
import socket
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


# Each width is the work of one process.
WIDTHS = [pytest.param(width, marks=pytest.mark.xdist_group(str(width))) for width in (1280, 390)]


@pytest.fixture(scope="module", params=WIDTHS)
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
        size: Any = {"width": request.param, "height": 844}
        page = browser.new_context(viewport=size).new_page()
        page.set_default_timeout(60_000)
        page.on("filechooser", lambda _: None)  # else the first one may open before it is awaited
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
        page.width, page.root = request.param, root
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


def reach(tab: Any, target: Any) -> None:
    """Go to an element by the Tab key."""
    for _ in range(150):
        tab.keyboard.press("Tab")
        if target.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"{target} is not reached by Tab")


def follow(tab: Any, name: str) -> None:
    """Go to a link or a button by the Tab key, and press Enter."""
    target = tab.get_by_role("link", name=name, exact=True)
    reach(tab, target.or_(tab.get_by_role("button", name=name, exact=True)).first)
    tab.keyboard.press("Enter")


def write(tab: Any, **fields: str) -> None:
    """Go to the fields of a form by the Tab key, in their order, and type into them."""
    for name, text in fields.items():
        field = tab.locator(f"[name={name}]:not([type=hidden])")
        reach(tab, field)
        if field.evaluate("one => one.matches('input')"):
            tab.keyboard.press("Control+A")
        tab.keyboard.type(text)  # in a list, it chooses what begins so


def enter_as_ann(tab: Any) -> None:
    """Give a name: its field has the focus."""
    tab.wait_for_url("**/annotate?**")
    tab.locator("[name=person]:focus").wait_for()
    tab.keyboard.type("Ann")


def test_browse_by_keys(tab: Any) -> None:
    tab.goto(tab.base)
    look(tab, "runs")
    tab.keyboard.press("Tab")  # to the skip link
    tab.keyboard.press("Enter")
    follow(tab, "pairs")
    tab.wait_for_url("**/rows?run=pairs")
    tab.locator(".count b").wait_for()  # the first rows are read
    look(tab, "rows")
    tab.locator(".count b").filter(has_text="130 rows").wait_for()
    tab.keyboard.press("n")
    tab.wait_for_url("**after=49*")
    tab.keyboard.press("/")
    tab.keyboard.type("number12*")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**q=number12*")
    assert tab.locator(".count b").inner_text() == "11 rows"
    follow(tab, "all rows")
    tab.wait_for_url("**/rows?run=pairs")
    if tab.width < 900:
        reach(tab, tab.locator(".facets summary"))
        tab.keyboard.press("Enter")
    reach(tab, tab.locator(".facet a").filter(has_text="dropped"))
    tab.keyboard.press("Enter")
    tab.wait_for_url("**state=dropped")
    assert tab.locator(".count b").inner_text() == "26 rows"
    reach(tab, tab.locator(".filters summary"))
    tab.keyboard.press("Enter")
    write(tab, sort="similarity", order="down")
    follow(tab, "Show")
    tab.wait_for_url("**sort=similarity&order=down**")
    shown = [float(one) for one in tab.locator("[data-name=similarity] span").all_inner_texts()
             if one[0].isdigit()]  # fmt: skip
    assert shown == sorted(shown, reverse=True)
    look(tab, "filtered")
    tab.reload()  # the address is a permalink
    assert tab.locator(".count b").inner_text() == "26 rows"
    if tab.width > 900:
        reach(tab, tab.locator(".bins a").first)
        tab.keyboard.press("Enter")
        tab.wait_for_url("**-max=*")
    row = tab.locator("th.place a").first
    number = int(row.inner_text())
    reach(tab, row)
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**row={number}")
    look(tab, "row")
    tab.keyboard.press("n")
    tab.wait_for_url(f"**row={number + 1}")


def test_a_run_that_works_is_followed(tab: Any) -> None:
    folder = write_run(tab.root / "later", pairs(40), parts=4, done=1)
    lock = folder / ".tilth-lock"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    tab.goto(tab.base)
    tab.get_by_text("1 / 4").wait_for()
    look(tab, "runs-running")
    lock.unlink()
    write_run(folder, pairs(40), parts=4, done=2)
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    tab.get_by_text("2 / 4").wait_for()
    lock.unlink()
    tab.locator(".state.stopped").wait_for()


@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("class", ("1", "2", "3")),
        ("grade", ("0", "5", "2")),
        ("same meaning", ("1", "2", "1")),
        ("classes", ("12\n", "3\n", "\n")),
    ],
)
def test_annotate_by_keys(tab: Any, task: str, keys: tuple[str, ...]) -> None:
    tab.goto(f"{tab.base}/rows?run=pairs&state=kept")
    follow(tab, "annotate a sample of them")
    tab.wait_for_url("**/samples?**")
    look(tab, "samples")
    write(tab, name=f"{task} {tab.width}", task=task.split()[0] + ":" * (" " not in task),
          count="4")  # fmt: skip
    tab.keyboard.press("Enter")
    enter_as_ann(tab)
    look(tab, "person")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**person=Ann")
    look(tab, f"annotate-{task.replace(' ', '-')}")
    assert "label" not in tab.locator(".judge .whole").inner_text()  # blind

    def answer(typed: str) -> None:
        for key in typed[:-1]:
            tab.keyboard.press(key)
        with tab.expect_navigation():
            tab.keyboard.press(typed[-1].replace("\n", "Enter"))

    for done, typed in enumerate(keys):
        assert tab.locator(".done-bar b").inner_text() == str(done)
        answer(typed)
    answer("u")
    assert tab.locator(".done-bar b").inner_text() == "2"
    tab.keyboard.press("f")
    tab.keyboard.press("e")
    tab.keyboard.type("odd 1")
    tab.keyboard.press("Escape")
    answer(keys[1])
    answer("s")
    assert "no row left" in tab.locator("main").inner_text()
    follow(tab, "Results")
    tab.wait_for_url("**/results**")
    look(tab, f"results-{task.replace(' ', '-')}")
    with tab.expect_download() as download:
        follow(tab, "Argilla")
    reach(tab, tab.locator("[type=file]"))
    with tab.expect_file_chooser() as chooser:
        tab.keyboard.press("Enter")
    chooser.value.set_files(download.value.path())
    follow(tab, "Take in")
    tab.get_by_text("taken in: 3 answers").wait_for()
    follow(tab, "Data set with people's labels")
    tab.get_by_text(f"{task.replace(' ', '-')}-{tab.width}-corrected").wait_for()
    said = tab.locator("main").inner_text()
    assert "flagged: odd 1" in said
    assert "Ann" in said


def test_results_are_live_but_stay_under_the_focus(tab: Any) -> None:
    tab.goto(f"{tab.base}/samples?run=pairs")
    write(tab, name=f"live {tab.width}", task="grade:", count="4")
    tab.keyboard.press("Enter")
    enter_as_ann(tab)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**person=Ann")
    results = tab.context.new_page()
    results.goto(tab.url.replace("/annotate?", "/results?"))
    judged = results.locator(".numbers .value").first
    for typed in ("3", "f4"):
        for key in typed[:-1]:
            tab.keyboard.press(key)
        with tab.expect_navigation():
            tab.keyboard.press(typed[-1])
    results.locator(".numbers .value").first.filter(has_text="2").wait_for()
    link = results.locator("section a[href^='/row?']")
    link.focus()
    with tab.expect_navigation():
        tab.keyboard.press("5")
    results.wait_for_timeout(3_500)  # it would be loaded again
    assert link.evaluate("one => one === document.activeElement")
    assert judged.inner_text() == "2"
    link.blur()
    judged.filter(has_text="3").wait_for()
    results.close()


def test_mark_spans_by_keys_and_by_finger(tab: Any) -> None:
    tab.goto(f"{tab.base}/samples?run=tagged")
    assert tab.locator("[name=task]").input_value() == "spans"
    assert tab.locator("[name=labels]").input_value() == "ANIMAL\nWATER"
    write(tab, name=f"spans {tab.width}", count="3")
    tab.keyboard.press("Enter")
    enter_as_ann(tab)
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
    follow(tab, "try")
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
    reach(tab, tab.locator("[name=attempts]"))
    tab.keyboard.press("Enter")
    tab.locator(".attempts").first.wait_for(timeout=120_000)
    look(tab, "try-generated")
    assert tab.locator(".attempts > li").count() == 9
    assert tab.locator(".tokens [title^='alpha 0']").count() > 0
    reach(tab, tab.locator("summary").last)
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

"""The page in a real browser: every tab is driven as a person would, and shows what Python computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.images import encoded, squares
from tests.serve.browser import CHROMIUM, FLAGS, Watched, needs_chromium, texts, values
from tests.serve.serving import serving
from tests.serve.small_set import SmallSet
from twofold.generate.search import GenerateOptions
from twofold.model.continuing import Continuation
from twofold.results.explanation import RankingExplanation

pytestmark = [needs_chromium, pytest.mark.xdist_group("browser")]

RANKERS = ("bi", "poly", "late", "cross")
CONTEXT = "two hundred and five"
CANDIDATES = ["102 and 7", "11", "2045", "3 900 6", "two", "300 삼백"]
SENTENCE = "one hundred and two"
BEAM, LONGEST = 3, 6
KEY = "open-sesame"
DRAWN = 1000
"""Milliseconds until something useful is drawn."""
WIDTHS = {"phone": {"width": 360, "height": 740}, "desk": {"width": 1280, "height": 900}}

Open = Callable[..., Watched]


@pytest.fixture(scope="module")
def address(models: SmallSet) -> Iterator[str]:
    """Server with a key, which pages have unless a test takes it from them."""
    with serving(*(f"{name}={folder}" for name, folder in models.folders.items()), keys=(KEY,)) as server:
        yield server.url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium: Any, address: str) -> Iterator[Open]:
    """Opens pages, and checks each at the end: no error, no request elsewhere, no horizontal scrolling."""
    contexts, watched = [], []

    def opened(width: str = "desk", **settings: Any) -> Watched:
        contexts.append(chromium.new_context(**{"viewport": WIDTHS[width], "locale": "en-US", **settings}))
        contexts[-1].add_init_script(f"sessionStorage.setItem('twofold.key', '{KEY}')")
        watched.append(Watched(contexts[-1], address))
        return watched[-1]

    yield opened
    for each in watched:
        each.check()
    for context in contexts:
        context.close()


def at(tab: str, **params: Any) -> str:
    """Permalink of a tab."""
    return f"#{tab}?{urlencode(params)}"


def tab(seen: Watched, name: str) -> None:
    seen.page.get_by_role("tab", name=name, exact=True).click()
    seen.settle()


def run(seen: Watched, button: str) -> None:
    seen.page.get_by_role("button", name=button, exact=True).click()
    seen.settle()


def close(shown: list[float], computed: Any) -> None:
    """Compares numbers of the page, to the digits that explanations have."""
    assert shown
    assert shown == pytest.approx([float(value) for value in computed], rel=2e-4, abs=2e-5)


def card(name: str) -> str:
    return f".card[data-model='{name}']"


def hits_of(seen: Watched, name: str) -> list[int]:
    ids = seen.page.eval_on_selector_all(
        f".column[data-model='{name}'] .hits li", "all => all.map((e) => e.dataset.id)"
    )
    return [int(each) for each in ids]


def test_something_useful_is_drawn_within_a_second(browse: Open) -> None:
    times = []
    for _ in range(3):
        seen = browse()
        seen.page.add_init_script(
            """new MutationObserver((_, watch) => {
              if (!document.querySelector("#panel form")) return;
              requestAnimationFrame(() => (window.drawn = performance.now()));
              watch.disconnect();
            }).observe(document, { childList: true, subtree: true });"""
        )
        page = seen.open()
        seen.settle()
        times.append(page.evaluate("window.drawn"))
    assert min(times) < DRAWN


def test_rankers_stand_side_by_side_with_the_scores_that_python_computes(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open()
    seen.settle()
    page.get_by_role("textbox", name="Context").fill(CONTEXT)
    page.get_by_role("textbox", name="Candidates").fill("\n".join(CANDIDATES))
    run(seen, "Rank")
    for name in RANKERS:
        hits = models.models[name].rank(CONTEXT, CANDIDATES, k=len(CANDIDATES))
        assert hits_of(seen, name) == [hit.id for hit in hits]
        close(values(page, f".column[data-model='{name}'] .score"), [hit.score for hit in hits])
        assert float(values(page, f".column[data-model='{name}'] .time data")[0]) > 0
    assert page.locator(".gutter path").count() == (len(RANKERS) - 1) * len(CANDIDATES)
    assert [hits_of(seen, "bi").index(int(each)) for each in _lines(page)] == list(range(len(CANDIDATES)))


def _lines(page: Any) -> list[str]:
    """Ids of the candidates whose lines leave the first column, from the top down."""
    starts = "all => all.map((e) => [parseFloat(e.getAttribute('d').slice(2)), e.dataset.id])"
    found = page.locator(".gutter").first.locator("path").evaluate_all(starts)
    return [identity for _, identity in sorted(found)]


def test_a_click_on_a_candidate_shows_what_makes_its_score(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("rank", context=CONTEXT, candidates="\n".join(CANDIDATES)))
    seen.settle()
    page.locator(".column[data-model='poly'] .hit").nth(2).click()
    seen.settle()
    chosen = hits_of(seen, "poly")[2]
    explained = {name: _explained(models.models[name], chosen) for name in RANKERS}
    for name in RANKERS:
        best = explained[name].candidates[0]
        close(values(page, f"{card(name)} .total data"), [best.score])
        words = [*best.context_influence.values[:, 0], *best.candidate_influence.values[:, 0]]  # type: ignore[union-attr]
        shown = page.locator(f"{card(name)} .words").last.locator("xpath=..").locator(".word").all_text_contents()
        assert len(shown) == len(words)
    codes = explained["poly"].candidates[0].parts.codes
    assert codes is not None
    order = sorted(range(len(codes.weights[0])), key=lambda place: -codes.weights[0][place])
    close(values(page, f"{card('poly')} button.bar > data"), [codes.weights[0][place] for place in order])
    close(values(page, f"{card('poly')} button.bar small data"), [codes.parts[0][place] for place in order])
    page.locator(f"{card('poly')} button.bar").nth(1).click()
    close(values(page, f"{card('poly')} .words >> nth=0 >> data"), codes.attention[order[1]])
    matches = explained["late"].candidates[0].parts.matches
    assert matches is not None
    similar = [matches.similarities[row][column] for row, column in enumerate(matches.best)]
    close(values(page, f"{card('late')} .bar > data"), similar)
    compared = explained["cross"].candidates[0]
    close(values(page, f"{card('cross')} .bar >> nth=0 >> data"), [compared.parts.compared])
    assert page.locator(f"{card('bi')} .bar").count() == 0


def _explained(model: Any, chosen: int) -> RankingExplanation:
    explanation: RankingExplanation = model.explain(CONTEXT, [CANDIDATES[chosen]], k=1)
    return explanation


def test_leaving_out_a_word_shows_what_moved(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("rank", context=CONTEXT, candidates="\n".join(CANDIDATES)))
    seen.settle()
    before = {name: hits_of(seen, name) for name in RANKERS}
    page.get_by_role("button", name="hundred", exact=True).click()
    seen.settle()
    assert page.get_by_role("button", name="hundred", exact=True).get_attribute("aria-pressed") == "false"
    moved = 0
    for name in RANKERS:
        hits = models.models[name].rank("two and five", CANDIDATES, k=len(CANDIDATES))
        assert hits_of(seen, name) == [hit.id for hit in hits]
        now = [hit.id for hit in hits]
        changed = [place for place in range(len(now)) if now[place] != before[name][place]]
        ghosts = texts(page, f".column[data-model='{name}'] .was")
        assert ghosts == ["ABCDEF"[before[name][place]] for place in changed]
        moved += len(changed)
    assert moved, "the word must change a ranking for the test to mean anything"
    assert page.locator(".line.ghost").count() == moved
    assert CONTEXT in page.locator(".before").inner_text()
    page.reload()
    seen.settle()
    assert page.locator(".line.ghost").count() == moved


def test_a_search_shows_its_hits_and_their_proof(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("search"))
    page.get_by_role("textbox", name="Context").fill(SENTENCE)
    page.get_by_label("Number of hits").fill("5")
    page.get_by_label("Filter").fill('lang = "ko"')
    run(seen, "Search")
    hits, certificate = models.index.explain(SENTENCE, 5, 'lang = "ko"')
    ids = page.eval_on_selector_all(".found li", "all => all.map((e) => e.dataset.id)")
    assert ids == [hit.id for hit in hits]
    close(values(page, ".found .score"), [hit.score for hit in hits])
    why = page.locator(".why").inner_text()
    assert str(certificate.candidates) in why
    assert str(certificate.scored) in why
    assert page.locator(".certificate .stem").count() == len(certificate.scores)
    assert page.locator(".certificate .stem.hit").count() == 5
    page.get_by_label("Filter").fill("lang ~ ; drop table")
    run(seen, "Search")
    assert page.get_by_role("alert").count() == 1
    seen.errors = [
        error for error in seen.errors if "422" not in error
    ]  # the browser notes the status that was asked for


def test_a_text_its_alternatives_and_its_attention_are_those_of_python(browse: Open, models: SmallSet) -> None:
    seen, model = browse(), models.models["translate"]
    page = seen.open(at("write", max_length=LONGEST, beam=BEAM))
    page.get_by_role("combobox", name="Model").select_option("translate")
    page.get_by_label("Text", exact=True).fill(SENTENCE)
    run(seen, "Write")
    explanation = model.explain(SENTENCE, GenerateOptions(beam=BEAM, max_length=LONGEST))
    assert page.locator(".output").inner_text() == explanation.output.strip()
    assert texts(page, ".words >> nth=0 >> .text") == list(explanation.written)
    page.locator(".words >> nth=0").get_by_role("button").nth(2).click()
    choice = explanation.choices[2]
    assert texts(page, "button.bar .name") == [token for token, _ in choice.alternatives]
    close(values(page, "button.bar > data"), [probability for _, probability in choice.alternatives])
    page.get_by_role("button", name="Layer 2, head 2").click()
    cross = explanation.attention_of("cross")
    assert cross is not None
    page.locator(".cells").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    close(values(page, ".readout data"), [cross.weights[1, 1, 1, 2]])
    assert page.locator(".beam .node").count() == sum(map(len, explanation.beam))
    assert page.locator(".beam .wins").count() in (len(explanation.written), len(explanation.written) - 1)


def test_a_clicked_token_is_forced_and_the_text_goes_on_from_it(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("write", model="translate", text=SENTENCE, max_length=LONGEST))
    seen.settle()
    before = texts(page, ".words >> nth=0 >> .text")
    forced: list[str] = []
    for step in range(2):
        page.locator(".words >> nth=0").get_by_role("button").nth(step).click()
        written, listed = texts(page, ".words >> nth=0 >> .text"), texts(page, "button.bar .name")
        place = next(n for n, token in enumerate(listed) if token != written[step] and not token.startswith("<"))
        page.locator("button.bar").nth(place).click()
        seen.settle()
        forced.append(listed[place])
    options = GenerateOptions(beam=BEAM, max_length=LONGEST)
    continued = Continuation(models.models["translate"], SENTENCE, forced).write(options)
    explanation = models.models["translate"].explain(SENTENCE, options, written=continued.ids)
    after = texts(page, ".words >> nth=0 >> .text")
    assert after[:2] == forced
    assert after == list(explanation.written)
    close(values(page, ".words >> nth=0 >> data"), [choice.probability for choice in explanation.choices])
    assert " ".join(forced) in page.locator(".forced").inner_text()
    other = browse()
    other.page.goto(page.url)
    other.settle()
    assert texts(other.page, ".words >> nth=0 >> .text") == after
    page.get_by_role("button", name="Let the model choose").click()
    seen.settle()
    assert texts(page, ".words >> nth=0 >> .text") == before


def test_a_caption_is_drawn_over_its_image_word_by_word(browse: Open, models: SmallSet, tmp_path: Path) -> None:
    seen = browse()
    page = seen.open(at("write", model="caption", max_length=LONGEST))
    page.set_input_files("input[type=file]", _image(tmp_path))
    run(seen, "Write")
    pixels, _ = squares(3, 32)
    explanation = models.models["caption"].explain(pixels, GenerateOptions(beam=BEAM, max_length=LONGEST))
    assert texts(page, ".lit figcaption") == list(explanation.written)
    rows, columns = explanation.grid
    assert page.eval_on_selector(".lit canvas", "each => [each.height, each.width]") == [rows, columns]
    cross = explanation.attention_of("cross")
    assert cross is not None
    page.locator(".cells").focus()
    page.keyboard.press("ArrowRight")
    close(values(page, ".readout data"), [cross.weights[-1, 0, 0, 1]])


def _image(folder: Path) -> str:
    path = folder / "squares.png"
    path.write_bytes(encoded(squares(3, 32)[0]))
    return str(path)


def test_masks_of_two_models_lie_over_the_same_image(browse: Open, models: SmallSet, tmp_path: Path) -> None:
    seen = browse()
    page = seen.open(at("look"))
    page.set_input_files("input[type=file]", _image(tmp_path))
    seen.settle()
    pixels, _ = squares(3, 32)
    page.locator(".stack").first.focus()
    page.keyboard.press("ArrowLeft")
    for name in ("with-skips", "without-skips"):
        explanation = models.models[name].explain(pixels)
        mask, place = explanation.output, (16, 15)
        region = f"section[data-model='{name}']"
        assert page.locator(f"{region} .readout span").inner_text() == mask.names[mask.pixels[place]]
        assert values(page, f"{region} .readout data")[0] == pytest.approx(explanation.confidence[place], abs=1 / 255)
        shares = mask.shares()
        shown = dict(zip(texts(page, f"{region} .bar .name"), values(page, f"{region} .bar data"), strict=True))
        assert shown == pytest.approx(shares)
        drawn = page.eval_on_selector(f"{region} canvas.mask", PIXELS)
        assert len({tuple(color) for color in drawn}) == len(shares)
    page.get_by_label("Opacity of the mask").fill("20")
    assert page.eval_on_selector("canvas.mask", "each => getComputedStyle(each).opacity") == "0.2"
    page.locator("section[data-model='with-skips'] button.bar").first.click()
    alone = page.eval_on_selector("canvas.mask", PIXELS)
    largest = max(models.models["with-skips"].explain(pixels).output.shares().values())
    assert sum(color[3] == 255 for color in alone) == round(largest * len(alone))


PIXELS = """each => {
  const bytes = each.getContext("2d").getImageData(0, 0, each.width, each.height).data;
  return Array.from({ length: bytes.length / 4 }, (_, place) => Array.from(bytes.slice(4 * place, 4 * place + 4)));
}"""


@pytest.mark.parametrize("name", ["label", "labels", "number"])
def test_probabilities_and_influences_are_those_of_python(name: str, browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("labels", model=name))
    page.get_by_label("Text", exact=True).fill(SENTENCE)
    run(seen, "Predict")
    explanation = models.models[name].explain(SENTENCE)
    assert texts(page, ".words .text") == SENTENCE.split()
    chosen = 0
    if name == "number":
        close(values(page, ".total data"), [explanation.output])
    else:
        given = explanation.probabilities[0]
        chosen = int(given.values[0].argmax())
        shown = dict(zip(texts(page, "button.bar .name"), values(page, "button.bar data"), strict=True))
        assert shown == pytest.approx(dict(zip(given.columns, given.values[0].tolist(), strict=True)), rel=1e-4)
    assert explanation.influence is not None
    close(values(page, ".words data"), explanation.influence.values[:, chosen])


def test_tags_are_spans_with_probabilities(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("labels", model="tags"))
    page.get_by_label("Sentence").fill(SENTENCE)
    run(seen, "Predict")
    explanation = models.models["tags"].explain(SENTENCE)
    assert texts(page, ".tag") == list(explanation.output.words)
    titles = page.eval_on_selector_all(".tag", "all => all.map((each) => each.title)")
    assert titles == list(explanation.output.tags)
    page.locator(".tag").nth(2).click()
    given = explanation.probabilities[0]
    shown = dict(zip(texts(page, ".bar .name"), values(page, ".bar data"), strict=True))
    assert shown == pytest.approx(dict(zip(given.columns, given.values[2].tolist(), strict=True)), rel=1e-4)


def test_a_tree_is_drawn_with_its_arcs(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("labels", model="tree", words=SENTENCE))
    seen.settle()
    explanation = models.models["tree"].explain(SENTENCE)
    tree = explanation.output
    assert texts(page, ".leaf text") == list(tree.words)
    assert sorted(texts(page, ".arc text")) == sorted(tree.relations)
    assert page.locator(".arc.root").count() == tree.heads.count(0)
    page.locator(".leaf").nth(3).focus()
    page.keyboard.press("Enter")
    heads = next(each for each in explanation.probabilities if each.name == "heads")
    region = ".halves .block >> nth=0 >> "
    shown = dict(zip(texts(page, f"{region} .bar .name"), values(page, f"{region} .bar data"), strict=True))
    assert shown == pytest.approx(dict(zip(heads.columns, heads.values[3].tolist(), strict=True)), rel=1e-4)


def test_the_parts_of_a_model_are_those_of_its_summary(browse: Open, models: SmallSet) -> None:
    seen = browse()
    page = seen.open(at("model"))
    page.get_by_role("combobox", name="Model").select_option("poly")
    seen.settle()
    summary = models.models["poly"].summary()
    order = [part for letters in ("Xf", "gY") for part in summary.parts if part.letter in letters]
    assert texts(page, ".part strong") == [part.kind for part in order]
    shapes = [f"({', '.join(map(str, flow.shape))})" for part in order for flow in part.gives if flow.shape]
    assert texts(page, ".what code") == shapes
    assert values(page, ".block > .sizes > li > .bar data, .block > .sizes > li > details > summary data") == [
        size.parameters for size in summary.sizes
    ]


def test_tabs_are_moved_with_arrows_and_permalinks_restore_everything(browse: Open) -> None:
    seen = browse()
    page = seen.open(at("rank", context=CONTEXT, candidates="\n".join(CANDIDATES), pick=3, hide="late"))
    seen.settle()
    page.get_by_role("tab", name="Rank").focus()
    page.keyboard.press("ArrowLeft")
    seen.settle()
    assert page.get_by_role("tab", name="Model").get_attribute("aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "tab-model"
    page.keyboard.press("Home")
    seen.settle()
    page.get_by_role("button", name="한국어").click()
    seen.settle()
    state = _state(page)
    assert state["chosen"] == ["3", "3", "3"]
    other = browse(locale="en-US")
    other.page.goto(page.url)
    other.settle()
    assert _state(other.page) == state
    page.go_back()
    seen.settle()
    assert page.locator("#tab-model").get_attribute("aria-selected") == "true"


def _state(page: Any) -> dict[str, Any]:
    return {
        "language": page.evaluate("document.documentElement.lang"),
        "fields": page.eval_on_selector_all("textarea, input", "all => all.map((e) => [e.value, e.checked])"),
        "chosen": page.eval_on_selector_all(
            ".hit[aria-pressed=true]", "all => all.map((e) => e.parentNode.dataset.id)"
        ),
        "columns": texts(page, ".column h2"),
        "scores": values(page, ".hits .score"),
    }


def test_what_a_page_keeps_is_restored_in_every_tab(browse: Open) -> None:
    """Choices inside of figures: a code, a head of a layer, a label, a class."""
    ranked = {"context": CONTEXT, "candidates": "\n".join(CANDIDATES), "codes.poly": 0}
    written = {"model": "translate", "text": SENTENCE, "max_length": 4, "step": 2, "part": "decoder"}
    cases = (
        (at("rank", **ranked), f"{card('poly')} button.bar[aria-pressed=true]", "Code 1"),
        (at("write", **written, layer=0, head=1), ".thumb[aria-pressed=true]", "Layer 1, head 2"),
        (at("labels", model="label", text=SENTENCE, pick=0), "button.bar[aria-pressed=true]", "few"),
    )
    seen = browse()
    for place, selector, said in cases:
        page = seen.open(place)
        page.reload()
        seen.settle()
        found = page.locator(selector)
        assert found.count() == 1
        assert said in (found.get_attribute("aria-label") or found.inner_text())


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
def test_every_tab_fits_a_phone_in_both_languages_and_themes(locale: str, theme: str, browse: Open) -> None:
    seen = browse("phone", locale=locale, color_scheme=theme)
    page = seen.open(at("rank", context=CONTEXT, candidates="\n".join(CANDIDATES)))
    seen.settle()
    assert page.evaluate("document.documentElement.lang") == locale[:2]
    brightness = page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(brightness) < 80) == (theme == "dark")
    names = texts(page, "[role=tab]")
    assert len(names) == 6
    assert all(("가" <= name[0] <= "힣") == (locale == "ko-KR") for name in names)
    places = [
        "search?context=two",
        f"write?text={SENTENCE}&max_length=5",
        "look",
        f"labels?model=tree&words={SENTENCE}",
        "model?model=cross",
    ]
    for place in ["rank", *places]:
        page.goto(f"{seen.address}/#{place}")
        seen.settle()
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"]["width"], place
    seen.check()


def test_the_theme_is_chosen_by_a_button_and_kept(browse: Open) -> None:
    seen = browse(color_scheme="light")
    page = seen.open(at("model"))
    seen.settle()
    for expected in ("light", "dark"):
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == expected
    page.reload()
    seen.settle()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_every_control_has_a_name(browse: Open) -> None:
    """What a screen reader reads: each field, button and figure has a name."""
    seen = browse()
    for place in (
        at("rank", context=CONTEXT, candidates="11\n12"),
        at("search", context="two"),
        at("write", model="translate", text="two", max_length=3),
        at("labels", model="tree", words="one two"),
        at("look"),
    ):
        page = seen.open(place)
        page.reload()
        seen.settle()
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("input, textarea, select, button, svg[role], [role=application]")]
              .filter((each) => each.offsetParent !== null || each.closest("svg"))
              .filter((each) => !(each.labels?.length || each.getAttribute("aria-label") || each.textContent.trim()))
              .map((each) => each.outerHTML.slice(0, 90))"""
        )
        assert unnamed == [], place
        assert (
            page.locator("main > [role=tabpanel]").get_attribute("aria-labelledby") == f"tab-{place[1:].split('?')[0]}"
        )


def test_a_key_is_asked_for_and_kept_in_the_tab(chromium: Any, address: str) -> None:
    context = chromium.new_context(locale="en-US")
    seen = Watched(context, address)
    page = seen.open()
    for key in ("a wrong one", KEY):
        page.get_by_role("textbox", name="Key").fill(key)
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Rank", exact=True).wait_for()
    seen.settle()
    assert page.locator(".column").count() == len(RANKERS)
    page.reload()
    seen.settle()
    assert not page.locator("dialog").is_visible()
    seen.errors = [error for error in seen.errors if "401" not in error]
    seen.check()
    context.close()


def test_hostile_texts_stay_texts(browse: Open) -> None:
    """Markup in what a person types, or in a link that they are sent, is shown as it is."""
    seen = browse()
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    page = seen.open(at("rank", context=hostile, candidates=f"{hostile}\n11", pick=json.dumps(hostile)))
    seen.settle()
    assert hostile in texts(page, ".hits .text")
    assert page.locator("img, main script").count() == 0

"""`/generate`, `/next` and `/predict` answer what Python answers; streams bring the same text bit by bit."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import some_image
from tests.serve.serving import Served, assert_alike
from tests.serve.small_set import SmallSet
from twofold.generate.search import GenerateOptions


def png(seed: int = 3) -> bytes:
    content = io.BytesIO()
    Image.fromarray(some_image(seed=seed)).save(content, "png")
    return content.getvalue()


def test_a_text_is_that_of_python(served: Served, models: SmallSet) -> None:
    several: list[dict[str, Any]] = [{"max_length": 6}, {"beam": 3, "max_length": 6}]
    for options in several:
        answer = served.post("/generate", model="translate", input="one two", options=options)
        (prediction,) = models.models["translate"].predict(["one two"], GenerateOptions(**options))
        assert answer["text"] == prediction.output
        assert tuple(answer["ids"]) == prediction.tokens


def test_a_stream_brings_the_same_text(served: Served) -> None:
    body = {"model": "translate", "input": "one two", "options": {"max_length": 6}}
    whole = served.post("/generate", **body)
    status, headers, content = served.send("POST", "/generate", json.dumps({**body, "stream": True}).encode())
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [json.loads(event.removeprefix(b"data: ")) for event in content.strip().split(b"\n\n")]
    *tokens, last = events
    assert len(tokens) >= 2
    assert "".join(token["text"] for token in tokens) == last["text"] == whole["text"]
    assert [token["id"] for token in tokens] == last["ids"]
    assert last["done"] is True


def test_an_error_before_the_first_token_is_an_answer(served: Served) -> None:
    body = {"model": "translate", "input": "one", "prefix": ["no such token"], "stream": True}
    status, content = served.ask("POST", "/generate", body)
    assert status == 422
    assert "prefix[0]" in content["error"]["message"]


def test_a_token_can_be_forced(served: Served) -> None:
    asked = {"model": "translate", "input": "one two"}
    choices = served.post("/next", **asked)["choices"]
    assert sum(choice["probability"] for choice in choices) <= 1
    assert len(choices) == 10
    forced = choices[3]["token"]
    after = served.post("/next", **asked, prefix=[forced])
    assert after["prefix"] == [forced]
    written = served.post("/generate", **asked, prefix=[forced], options={"max_length": 4})
    assert written["tokens"][0] == forced
    assert written["tokens"][1] == after["choices"][0]["token"]


@pytest.mark.parametrize("name", ["label", "labels", "number", "tags", "tree"])
def test_predictions_are_those_of_python(served: Served, models: SmallSet, name: str) -> None:
    inputs = ["one two", "seven"]
    answers = served.post("/predict", model=name, batch=inputs)["predictions"]
    model = models.models[name]
    for answer, prediction in zip(answers, model.predict(inputs), strict=True):
        assert_alike(answer["output"], model.outputs["main"].plain(prediction.output))
        assert answer["score"] == pytest.approx(prediction.score, rel=1e-3)


def test_images_come_as_base64_and_as_files(served: Served, models: SmallSet) -> None:
    written = {"model": "caption", "input": {"image": base64.b64encode(png()).decode()}}
    (answer,) = served.post("/predict", **written)["predictions"]
    assert answer["output"] == models.models["caption"].predict(some_image(seed=3))[0].output
    form = b"\r\n".join(
        [
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ncaption',
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="/etc/passwd"\r\n\r\n' + png(),
            b"--b--\r\n",
        ]
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    status, _, content = served.send("POST", "/predict", form, headers)
    assert status == 200, content
    assert json.loads(content)["predictions"] == [answer]


def test_sounds_come_as_base64(served: Served) -> None:
    soundfile: Any = pytest.importorskip("soundfile")
    content = io.BytesIO()
    soundfile.write(content, np.sin(np.arange(4000) / 9), 8000, format="WAV")
    given = {"audio": base64.b64encode(content.getvalue()).decode()}
    answer = served.post("/explain", model="transcribe", input=given, options={"max_length": 4})
    assert answer["explanation"]["timeline"]["values"]


def test_masks_are_explained_by_images(served: Served, models: SmallSet) -> None:
    given = {"image": base64.b64encode(png()).decode()}
    answer = served.post("/explain", model="with-skips", input=given)
    mask = models.models["with-skips"].predict(some_image(seed=3))[0].output
    shown = Image.open(io.BytesIO(base64.b64decode(answer["shown"]["mask"]["png"])))
    assert np.array_equal(np.asarray(shown), mask.pixels)
    classes = answer["shown"]["classes"]
    assert [each["name"] for each in classes] == list(mask.names)
    assert {each["name"]: each["share"] for each in classes if each["share"]} == pytest.approx(mask.shares())
    colors = np.asarray(shown.convert("RGB"))
    for row, column in ((0, 0), (-1, -1)):
        red, green, blue = colors[row, column].tolist()
        assert f"#{red:02x}{green:02x}{blue:02x}" == classes[mask.pixels[row, column]]["color"]


def test_classes_have_colors_of_their_own() -> None:
    from twofold.serve.figures import colors

    assert len(set(colors(255))) == 255


def test_unlike_options_share_no_batch(served: Served) -> None:
    short = served.post("/predict", model="translate", input="one two", options={"max_length": 2})
    long = served.post("/predict", model="translate", input="one two", options={"max_length": 6})
    assert len(short["predictions"][0]["output"]) < len(long["predictions"][0]["output"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam": 0}, "beam"),
        ({"beam": 1000}, "hypotheses"),
        ({"beams": 3}, "did you mean 'beam'"),
        ({"temperature": "hot"}, "options.temperature"),
        ({"sample": True, "beam": 2}, "sampling"),
    ],
)
def test_wrong_options_are_refused(served: Served, options: dict[str, Any], said: str) -> None:
    status, content = served.ask("POST", "/generate", {"model": "translate", "input": "one", "options": options})
    assert status in (413, 422)
    assert said in content["error"]["message"]

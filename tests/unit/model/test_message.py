import pytest

from trainprobe.model.message import Message, Unrenderable, render, template, text_of

SAVED = template("test.saved", "saved {path}: {bytes:size} in {spent:seconds}{details}")
SYNCED = template("test.synced", ", {share:percent} of it in fsync")


def test_a_message_is_its_template_with_the_values_in_it() -> None:
    made = SAVED(path="/a/b.pt", bytes=246e6, spent=1.5, details=[SYNCED(share=0.25), SYNCED(share=0.5)])
    assert str(made) == "saved /a/b.pt: 246 MB in 1.50 s, 25.0 % of it in fsync, 50.0 % of it in fsync"


def test_what_is_none_is_shown_as_nothing() -> None:
    assert str(SAVED(path="x", bytes=1, spent=0, details=None)) == "saved x: 1 B in 0 ms"


def test_a_catalogue_gives_the_text_of_every_part() -> None:
    texts = {SAVED.id: "<{details:;}>", SYNCED.id: "{share:.0%}"}
    made = SAVED(path="x", bytes=1, spent=0, details=[SYNCED(share=1), "y", SYNCED(share=0.5)])
    assert render(made, texts.get) == "<100%;y;50%>"


def test_a_value_that_no_place_takes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"test\.synced takes \['share'\], given \['shares'\]"):
        SYNCED(shares=1)


def test_two_sentences_have_two_ids() -> None:
    with pytest.raises(ValueError, match=r"test\.saved"):
        template("test.saved", "another")


def test_a_message_of_a_later_version_is_shown_by_its_id() -> None:
    assert str(Message("later.news", {"x": 1})) == "later.news"
    assert text_of(Message("later.news", {"x": 1}), "news") == "news"


@pytest.mark.parametrize(
    "message",
    [
        Message("later.news"),
        Message(SYNCED.id),
        Message(SYNCED.id, {"share": "much"}),
        Message(SYNCED.id, {"share": 10**400}),
        Message(SAVED.id, {"path": "x", "bytes": 1, "spent": 0, "details": [Message("later.news")]}),
        Message(SAVED.id, {"path": "x", "bytes": "many", "spent": 1, "details": None}),
    ],
)
def test_what_does_not_fit_its_text_is_said_otherwise(message: Message) -> None:
    assert text_of(message, "in English") == "in English"
    with pytest.raises(Unrenderable):
        render(message, {SYNCED.id: "{share:.1%}", SAVED.id: "{path} {bytes:size} {details}"}.get)


def test_braces_in_a_value_are_text() -> None:
    assert str(SAVED(path="{0.__class__}", bytes=1, spent=0, details=None)).startswith("saved {0.__class__}:")

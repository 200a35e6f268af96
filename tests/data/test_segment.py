from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data.segment import split_paragraphs


def test_segmenter() -> None:
    found, paragraph = split_paragraphs(
        ["Mr. Hill said no. We left.", "", "  ", '"It rains. We stay in," she said.', "One line"]
    )
    assert found.to_pylist() == [
        "Mr. Hill said no.", "We left.", '"It rains.', 'We stay in," she said.', "One line",
    ]  # fmt: skip
    assert paragraph.tolist() == [0, 0, 3, 3, 4]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab A.!?\"'() é€"), max_size=40)))
def test_segments_together_are_the_paragraphs(paragraphs: list[str]) -> None:
    found, paragraph = split_paragraphs(paragraphs)
    joined = [""] * len(paragraphs)
    for text, place in zip(found.to_pylist(), paragraph.tolist(), strict=True):
        assert text
        assert text == text.strip()
        joined[place] += "".join(text.split())
    assert joined == ["".join(text.split()) for text in paragraphs]

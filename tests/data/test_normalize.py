import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data import normalize
from tilth.data.normalize import exact_keys, normalize_text, normalize_texts

HARD = [
    "", " ", "...", "?! ?!", "A", " a  b ", "\x1cA\x1fb\t", "É… ", "ﬁrst", "İ", "ß", "a$b", "$ $",
    "\0",
]  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(
        st.text()
        | st.text("a \u2016\u2017\u2018\u2026\u2027\u2028\u0301é", max_size=9)
        | st.text(" .,aB$\t\x1f", max_size=12)
        | st.sampled_from(HARD)
    )
)
def test_plain_of_many_is_plain_of_each(texts: list[str]) -> None:
    expected = [normalize_text(text) for text in texts]
    assert normalize_texts(pa.array(texts, pa.string())).to_pylist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalize, "_FEW", 0)  # in the kernel
        assert normalize_texts(pa.array(texts, pa.string())).to_pylist() == expected


def test_plain_of_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalize, "_FEW", 0)
    texts = pa.array(["One, two.", " Three. ", "...", "Four é!", "five"])
    assert normalize_texts(texts.slice(1, 3)).to_pylist() == ["three", "...", "four é"]


def test_keys_follow_the_plain_text_alone() -> None:
    keys = exact_keys(pa.array(["It rains.", "it  rains", "It rained.", "It, rains!"]))
    assert keys[0] == keys[1] == keys[3] != keys[2]
    assert keys[0] == 10905765933138994918  # the same on every machine

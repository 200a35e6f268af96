from datasets import Dataset, concatenate_datasets

from tests.tiny.calls import python
from tilth.data import fingerprint, text_id


def rows(*texts: str) -> Dataset:
    return Dataset.from_dict({"text": list(texts), "n": list(range(len(texts)))})


def test_text_id_is_the_same_in_every_process() -> None:
    assert text_id("A man is playing a flute.") == "01d7b4d00fab84f8"
    assert text_id("é") != text_id("e\u0301")
    code = "from tilth.data import text_id; print(text_id('a'))"
    said = python(code, PYTHONHASHSEED="77").stdout.strip()
    assert said == text_id("a")


def test_fingerprint_follows_values_order_and_columns_and_not_storage() -> None:
    whole = rows("a", "b", "c")
    once = fingerprint(whole, ["text"])
    assert fingerprint(rows("a", "c", "b"), ["text"]) != once
    assert fingerprint(rows("a", "b"), ["text"]) != once
    assert fingerprint(rows("ab", "", "c"), ["text"]) != once
    assert fingerprint(whole, ["text", "n"]) != once
    assert fingerprint(whole, ["n"]) != once
    pieces = concatenate_datasets([whole.select([0]), whole.select([1, 2])])
    assert fingerprint(pieces, ["text"]) == once
    assert fingerprint(whole.with_format("numpy"), ["text"]) == once

"""Compiled kernels over the bytes of many texts: cleaning, normalization, hashes of words.

Texts lie one after the other in UTF-8, `data`, # (bytes,); `starts` holds where each begins, and
the end. # (texts + 1,)
"""

from __future__ import annotations

import numba
from numba import uint8, uint32, uint64

from tilth.object_code import FAST

kernel = numba.njit(**FAST)

_LINE_END, _SPACE = 0x0A, 0x20


@kernel
def odd_lines(data, odd):  # type: ignore[no-untyped-def]
    """Mark the lines that have bytes which cleaning may change.

    All but: ASCII without controls, ampersands and two spaces side by side, and Latin letters,
    dashes, quotation marks and currencies that are NFC.

    Args:
        data: lines, with line ends between them.
        odd: uint8 output, 0 before. # (lines,)
    """
    line, before, place = 0, uint8(0), 0
    size = data.shape[0]
    while place < size:
        byte = data[place]
        more = data[place + 1] if place + 1 < size else uint8(0)
        place += 1
        if byte == _LINE_END:
            line += 1
        elif byte < 0x20 or byte == 0x26 or byte == 0x7F or (byte == _SPACE and before == _SPACE):
            odd[line] = 1
        elif byte >= 0x80:
            if byte == 0xC2:  # U+0080 to U+00BF
                odd[line] |= more <= 0xA0 or more == 0xAD
                place += 1
            elif 0xC3 <= byte <= 0xCB:  # to U+02FF
                place += 1
            elif byte == 0xE2 and place + 1 < size:
                last = data[place + 1]
                is_plain = more == 0x80 and (0x90 <= last <= 0xA7 or last >= 0xB0)
                odd[line] |= not (is_plain or more == 0x82)
                place += 2
            else:
                odd[line] = 1
        before = byte


@kernel
def count_kinds(data, starts, kinds, visible, counts):  # type: ignore[no-untyped-def]
    """Sum the counters of the bytes of each text.

    Args:
        kinds: uint64 counters of each byte. # (256,)
        visible: those of punctuation from U+2000 on. # (1,)
        counts: uint64 output. # (texts,)
    """
    for text in range(counts.shape[0]):
        total = uint64(0)
        stop = starts[text + 1]
        for place in range(starts[text], stop):
            byte = data[place]
            is_mark = byte == 0xE2 and place + 1 < stop and data[place + 1] == 0x80
            total += visible[0] if is_mark else kinds[byte]
        counts[text] = total


@kernel
def normalize_plain(data, starts, mapped, found, bounds, odd):  # type: ignore[no-untyped-def]
    """Map the bytes of texts; punctuation from U+2010 to U+2027 becomes a space, spaces one.

    Args:
        mapped: uint8 that stands for each byte of ASCII. # (256,)
        found: uint8 output. # (at least bytes,)
        bounds: int64 output, where each text begins, and the end. # (texts + 1,)
        odd: uint8 output, texts with other characters, whose output is invalid. # (texts,)
    """
    count = 0
    for text in range(odd.shape[0]):
        bounds[text] = count
        begun = count
        is_odd = False
        place, stop = starts[text], starts[text + 1]
        while place < stop:
            byte = data[place]
            place += 1
            if byte < 0x80:
                byte = mapped[byte]
            elif byte == 0xE2 and place + 1 < stop and data[place] == 0x80:
                last = data[place + 1]
                # NFKC turns U+2017 into a combining mark.
                if 0x90 <= last <= 0xA7 and last != 0x97:
                    byte = uint8(_SPACE)
                    place += 2
                else:
                    is_odd = True
            else:
                is_odd = True
            if byte != _SPACE or (count > begun and found[count - 1] != _SPACE):
                found[count] = byte
                count += 1
        if count > begun and found[count - 1] == _SPACE:
            count -= 1
        odd[text] = is_odd
    bounds[odd.shape[0]] = count


@kernel
def hash_words(data, starts, values, step, hashes, first):  # type: ignore[no-untyped-def]
    """Hash the words of texts: sums of value(byte) * step^place over a word, mixed.

    Args:
        values: uint64 of each byte. # (256,)
        step: uint64. # (1,)
        hashes: uint64 output. # (at least words,)
        first: int64 output, first word of each text, and the end. # (texts + 1,)
    """
    count = 0
    for text in range(first.shape[0] - 1):
        first[text] = count
        place, stop = starts[text], starts[text + 1]
        while place < stop:
            if data[place] == _SPACE:
                place += 1
                continue
            total, power = uint64(0), uint64(1)
            while place < stop and data[place] != _SPACE:
                total += values[data[place]] * power
                power *= step[0]
                place += 1
            # The low bits of such a sum follow from the low bits of its terms alone.
            total = (total ^ (total >> uint64(32))) * step[0]
            hashes[count] = total ^ (total >> uint64(29))
            count += 1
    first[first.shape[0] - 1] = count


@kernel
def min_hashes(words, first, factors, addends, least, keys):  # type: ignore[no-untyped-def]
    """Compute MinHash keys of the words and pairs of neighbouring words of texts.

    Args:
        words: uint64 hashes. # (words,)
        first: int64 first word of each text, and the end. # (texts + 1,)
        factors: uint64. # (hash functions,)
        addends: uint64. # (hash functions,)
        least: uint32 work space. # (hash functions,)
        keys: uint64 output; a band has as many hash functions as any other. # (texts, bands)
    """
    bands = keys.shape[1]
    each = factors.shape[0] // bands
    for text in range(keys.shape[0]):
        begin, end = first[text], first[text + 1]
        for row in range(factors.shape[0]):
            least[row] = uint32(0xFFFFFFFF)
        if begin == end:
            _lower(uint64(0), factors, addends, least)
        for place in range(begin, end):
            word = words[place]
            _lower(word, factors, addends, least)
            if place + 1 < end:
                following = words[place + 1]
                mixed = following ^ (following >> uint64(31))
                _lower(word * uint64(3) + uint64(2) * mixed, factors, addends, least)
        for band in range(bands):
            key = uint64(band)
            for row in range(band * each, (band + 1) * each):
                key = (key ^ uint64(least[row])) * uint64(0xFF51AFD7ED558CCD)
                key ^= key >> uint64(33)
            keys[text, band] = key


@kernel
def _lower(shingle, factors, addends, least):  # type: ignore[no-untyped-def]
    for row in range(factors.shape[0]):
        hashed = uint32((shingle * factors[row] + addends[row]) >> uint64(32))
        least[row] = min(least[row], hashed)

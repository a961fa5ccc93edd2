"""Arrays of byte strings as numbers, which a file holds without pickles."""

import numpy as np


def join_strings(strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Byte strings, object [...], as lengths int64 [...] and all their bytes, uint8 [total]."""
    flat = strings.reshape(-1).tolist()
    lengths = np.array([len(string) for string in flat], np.int64).reshape(strings.shape)
    return lengths, np.frombuffer(b"".join(flat), np.uint8)


def split_strings(lengths: np.ndarray, joined: np.ndarray) -> np.ndarray:
    """The byte strings, object [...], of which `join_strings` made lengths and bytes."""
    content, ends = joined.tobytes(), np.cumsum(lengths.reshape(-1))
    strings = np.empty(lengths.size, object)
    for i, (length, end) in enumerate(zip(lengths.reshape(-1), ends, strict=True)):
        strings[i] = content[end - length : end]
    return strings.reshape(lengths.shape)

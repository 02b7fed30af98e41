"""The checksum, against published values and the definition."""

import numpy as np
import pytest

from mybert.release.convert.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_the_checksums_of_rfc_3720_are_found(data, checksum):
    assert crc32c(data) == checksum


@pytest.mark.parametrize("size", [1, 4, 4091, 4092, 8188, 16380, 50_001])
def test_cutting_into_lanes_changes_nothing(size):
    data = np.random.default_rng(size).bytes(size)
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    assert crc32c(data) == register ^ 0xFFFFFFFF

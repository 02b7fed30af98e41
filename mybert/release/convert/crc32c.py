"""CRC-32C of large buffers, by numpy: the checksum of TensorFlow's checkpoints."""

import numpy as np

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed (RFC 3720, appendix B.4)
_LANE = 512  # bytes of a lane at least


def _byte_table() -> np.ndarray:
    """(256,) what the low byte of a register becomes when it is shifted out."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(_POLYNOMIAL)
    return table


_TABLE = _byte_table()
_FROM_ZEROS_TO_ONES = b"\x54\x64\x1f\x64"  # four bytes that turn a register of zeros into the ones a CRC starts from


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of `data`.

    A CRC takes its bytes one after the other, which Python does slowly. Since it is linear over XOR, `data` is cut
    into lanes of equal length, all lanes take a byte at a time, and neighbours are joined two by two, the left one
    moved past as many zero bytes as the right one is long.
    """
    content = np.frombuffer(_FROM_ZEROS_TO_ONES, np.uint8), np.frombuffer(data, np.uint8)
    size = sum(part.size for part in content)
    lanes = 1 << max(0, (size // _LANE).bit_length() - 1)
    length = -(-size // lanes)
    in_front = np.zeros(lanes * length - size, np.uint8)  # leaves a register of zeros as it is
    columns = np.concatenate([in_front, *content]).reshape(lanes, length).T
    register = np.zeros(lanes, np.uint32)
    for column in np.ascontiguousarray(columns):
        register = _take(register, column)
    moved = np.uint32(1) << np.arange(32, dtype=np.uint32)  # where each bit goes in `length` zero bytes
    for _ in range(length):
        moved = _take(moved, np.uint8(0))
    while register.size > 1:
        register = _move(register[::2], moved) ^ register[1::2]
        moved = _move(moved, moved)
    return int(register[0]) ^ 0xFFFFFFFF


def _take(register: np.ndarray, byte: np.ndarray) -> np.ndarray:
    return _TABLE[(register ^ byte) & 0xFF] ^ (register >> 8)


def _move(register: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Each register's bits put where `moved` (32,) says."""
    bits = register[:, None] >> np.arange(32, dtype=np.uint32) & 1
    return np.bitwise_xor.reduce(bits * moved, axis=1)

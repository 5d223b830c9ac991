"""Random numbers without state: a pure function of key and counter, so any replica can go on with any stream at any position.

Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
"""

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_ROUNDS = 10


def philox_4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 32-bit words from a 128-bit counter and a 64-bit key, all given as 32-bit words, lowest first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (product_1 >> 32) ^ c1 ^ k0, product_1 & _MASK, (product_0 >> 32) ^ c3 ^ k1, product_0 & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, choice: int, position: int) -> float:
    """The number in [0, 1) that decides token `position` of answer `choice`: 53 random bits of the stream that belongs to `seed`.

    Key: the 64-bit seed (a negative one in two's complement). Counter: position in the low 64 bits, choice in the next 32.
    """
    key = (seed & _MASK, (seed >> 32) & _MASK)
    high, low, _, _ = philox_4x32((position & _MASK, (position >> 32) & _MASK, choice & _MASK, 0), key)
    return ((high >> 5) * 67108864 + (low >> 6)) / 9007199254740992

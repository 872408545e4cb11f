# SPDX-License-Identifier: Apache-2.0
"""XXH3 in plain Python: the digest of our files (https://github.com/Cyan4973/xxHash, xxhash.h).

hash64(data, seed=0) and hash128(data) return integers, equal to XXH3_64bits_withSeed and XXH3_128bits.
The standard library is enough; one megabyte takes about a third of a second.
"""
import struct

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SECRET = bytes.fromhex(
    'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f'
    'cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c'
    '3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8'
    'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364'
    'eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e'
    '2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e')
STRIPE, CONSUMED = 64, 8  # bytes of data, and of the secret, for each stripe
STRIPES = (len(SECRET) - STRIPE) // CONSUMED  # of a block


def u32(data, at):
    return int.from_bytes(data[at:at + 4], 'little')


def u64(data, at):
    return int.from_bytes(data[at:at + 8], 'little')


def swap32(x):
    return int.from_bytes(x.to_bytes(4, 'little'), 'big')


def swap64(x):
    return int.from_bytes(x.to_bytes(8, 'little'), 'big')


def fold(a, b):
    """The halves of the 128-bit product of two 64-bit numbers, xored."""
    product = (a & MASK64) * (b & MASK64)
    return (product & MASK64) ^ (product >> 64)


def avalanche(x):
    x &= MASK64
    x = ((x ^ (x >> 37)) * 0x165667919E3779F9) & MASK64
    return x ^ (x >> 32)


def avalanche_xxh64(x):
    x &= MASK64
    x = ((x ^ (x >> 33)) * P64_2) & MASK64
    x = ((x ^ (x >> 29)) * P64_3) & MASK64
    return x ^ (x >> 32)


def mix16(data, at, secret_at, seed):
    return fold(u64(data, at) ^ ((u64(SECRET, secret_at) + seed) & MASK64),
                u64(data, at + 8) ^ ((u64(SECRET, secret_at + 8) - seed) & MASK64))


# ---- more than 240 bytes ----------------------------------------------------------------------

def accumulate(data, secret):
    """The eight accumulators after all data."""
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    length, block = len(data), STRIPE * STRIPES
    keys = [struct.unpack_from('<8Q', secret, CONSUMED * i) for i in range(STRIPES)]
    scramble = struct.unpack_from('<8Q', secret, len(secret) - STRIPE)

    def stripe(at, key):
        words = struct.unpack_from('<8Q', data, at)
        for i in range(8):
            keyed = words[i] ^ key[i]
            acc[i ^ 1] += words[i]
            acc[i] += (keyed & MASK32) * (keyed >> 32)

    blocks = (length - 1) // block
    for b in range(blocks):
        for i in range(STRIPES):
            stripe(b * block + i * STRIPE, keys[i])
        for i in range(8):
            a = acc[i] & MASK64
            acc[i] = ((a ^ (a >> 47) ^ scramble[i]) * P32_1) & MASK64
    for i in range((length - 1 - blocks * block) // STRIPE):
        stripe(blocks * block + i * STRIPE, keys[i])
    stripe(length - STRIPE, struct.unpack_from('<8Q', secret, len(secret) - STRIPE - 7))
    return [a & MASK64 for a in acc]


def merge(acc, secret, at, start):
    total = start
    for i in range(4):
        total += fold(acc[2 * i] ^ u64(secret, at + 16 * i), acc[2 * i + 1] ^ u64(secret, at + 16 * i + 8))
    return avalanche(total)


def secret_of(seed):
    if seed == 0:
        return SECRET
    words = struct.unpack('<24Q', SECRET)
    return struct.pack('<24Q', *((w - seed if i % 2 else w + seed) & MASK64 for i, w in enumerate(words)))


# ---- 64 bits ----------------------------------------------------------------------------------

def hash64(data, seed=0):
    """XXH3_64bits_withSeed(data, seed)."""
    data, n = bytes(data), len(data)
    if n > 240:
        secret = secret_of(seed)
        return merge(accumulate(data, secret), secret, 11, (n * P64_1) & MASK64)
    if n > 128:
        total = n * P64_1 + sum(mix16(data, 16 * i, 16 * i, seed) for i in range(8))
        total = avalanche(total) + sum(mix16(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, n // 16))
        return avalanche(total + mix16(data, n - 16, 136 - 17, seed))
    if n > 16:
        total = n * P64_1
        for i in range((n - 1) // 32 + 1):
            total += mix16(data, 16 * i, 32 * i, seed) + mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return avalanche(total)
    if n > 8:
        low = u64(data, 0) ^ (((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed) & MASK64)
        high = u64(data, n - 8) ^ (((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed) & MASK64)
        return avalanche(n + swap64(low) + high + fold(low, high))
    if n >= 4:
        seed ^= swap32(seed & MASK32) << 32
        keyed = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ (((u64(SECRET, 8) ^ u64(SECRET, 16)) - seed) & MASK64)
        rotated = [((keyed << r) | (keyed >> (64 - r))) & MASK64 for r in (49, 24)]
        x = ((keyed ^ rotated[0] ^ rotated[1]) * 0x9FB21C651E98DF25) & MASK64
        x = ((x ^ ((x >> 35) + n)) * 0x9FB21C651E98DF25) & MASK64
        return x ^ (x >> 28)
    if n > 0:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche_xxh64(combined ^ (((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed) & MASK64))
    return avalanche_xxh64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))


# ---- 128 bits, without a seed -------------------------------------------------------------------

def mix32(low, high, data, one, two, secret_at):
    low = ((low + mix16(data, one, secret_at, 0)) & MASK64) ^ ((u64(data, two) + u64(data, two + 8)) & MASK64)
    high = ((high + mix16(data, two, secret_at + 16, 0)) & MASK64) ^ ((u64(data, one) + u64(data, one + 8)) & MASK64)
    return low, high


def finish128(low, high, n):
    first = avalanche(low + high)
    second = avalanche(low * P64_1 + high * P64_4 + n * P64_2)
    return (-second & MASK64) << 64 | first


def hash128(data):
    """XXH3_128bits(data); as text: format(hash128(data), '032x')."""
    data, n = bytes(data), len(data)
    if n <= 16:
        raise ValueError('no file of ours is that short')
    if n > 240:
        acc = accumulate(data, SECRET)
        low = merge(acc, SECRET, 11, (n * P64_1) & MASK64)
        high = merge(acc, SECRET, len(SECRET) - 64 - 11, ~(n * P64_2) & MASK64)
        return high << 64 | low
    low, high = n * P64_1 & MASK64, 0
    if n > 128:
        for i in range(4):
            low, high = mix32(low, high, data, 32 * i, 32 * i + 16, 32 * i)
        low, high = avalanche(low), avalanche(high)
        for i in range(4, n // 32):
            low, high = mix32(low, high, data, 32 * i, 32 * i + 16, 3 + 32 * (i - 4))
        low, high = mix32(low, high, data, n - 16, n - 32, 136 - 17 - 16)
    else:
        for i in reversed(range((n - 1) // 32 + 1)):
            low, high = mix32(low, high, data, 16 * i, n - 16 * (i + 1), 32 * i)
    return finish128(low, high, n)

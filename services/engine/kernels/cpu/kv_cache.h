// Keys and values of one layer in pages, in bfloat16 or in 8 bits with a scale per token and head.
//
// Both are kept in cells of 64 bytes. A cell of keys is 16 tokens x 4 bytes of neighbouring dimensions of each; a cell of values is
// 16 dimensions x 4 bytes of neighbouring tokens of each. A cell times a word of 4 bytes, lane by lane, is what attention is made of.
#pragma once

#include <algorithm>

#include "vector.h"

namespace inferway {

enum KvFormat : int32_t { kKvBfloat16 = 0, kKvInt8 = 1 };

constexpr int kCell = 64;
constexpr int kMaxDim = 128;

#if defined(__AVX512BF16__)
INFERWAY_INLINE __m512bh as_bfloat16(const void* from) { return bits<__m512bh>(_mm512_loadu_si512(from)); }
#endif

// 16 floats to bfloat16.
INFERWAY_INLINE void store_bfloat16(uint16_t* to, const F32& values) {
#if defined(__AVX512BF16__)
    const __m256bh rounded = _mm512_cvtneps_pbh(values.part[0]);
    std::memcpy(to, &rounded, sizeof rounded);
#else
    float wide[kLanes];
    store(wide, values);
    for (int i = 0; i < kLanes; i++) to[i] = to_bfloat16(wide[i]);
#endif
}

// Rounds to -127 .. 127 plus `zero` and returns the scale; one that is not a number stands for a row that is not finite.
inline float round_bytes(const float* from, int dim, int zero, int8_t* to) {
    I32 top = fill<int32_t>(0);
    for (int d = 0; d < dim; d += kLanes) top = larger(top, magnitude(load<F32>(from + d)));
    const float most = largest_magnitude(top), factor = most > 0 ? 127.0f / most : 0.0f;
    for (int d = 0; d < dim; d += kLanes)
        store_bytes(to + d, shifted_bits(load<F32>(from + d) * fill(factor) + fill(kRoundingShift)) + fill<int32_t>(zero));
    return most / 127.0f + (most - most);
}

struct Bfloat16Kv {
    using Number = uint16_t;
    using Sum = F32;
    static constexpr int kPerWord = 2;
    static constexpr bool kScaled = false;

    // sum + cell * word, the odd number of each pair first; products are exact, each addition rounds.
    static INFERWAY_INLINE F32 dot(const F32& sum, const uint8_t* cell, uint32_t word) {
#if defined(__AVX512BF16__)
        return F32{{_mm512_dpbf16_ps(sum.part[0], as_bfloat16(cell), bits<__m512bh>(_mm512_set1_epi32(int32_t(word))))}};
#else
        const Pair pair = bfloat16_pairs(reinterpret_cast<const uint16_t*>(cell));
        return fma(pair.even, fill(bits<float>(word << 16)), fma(pair.odd, fill(bits<float>(word & 0xffff0000u)), sum));
#endif
    }
    static INFERWAY_INLINE F32 key_dot(const F32& sum, const uint8_t* cell, uint32_t word) { return dot(sum, cell, word); }
    static INFERWAY_INLINE F32 value_dot(const F32& sum, const uint8_t* cell, uint32_t word) { return dot(sum, cell, word); }
};

// Keys are kept plus 128, since one side of a product of bytes has no sign.
struct Int8Kv {
    using Number = uint8_t;
    using Sum = I32;
    static constexpr int kPerWord = 4;
    static constexpr bool kScaled = true;
    static constexpr int kZero = 128;

    static INFERWAY_INLINE I32 key_dot(const I32& sum, const uint8_t* cell, uint32_t word) {
        return add_products<255>(sum, load<U32>(cell), fill(word));
    }
    static INFERWAY_INLINE I32 value_dot(const I32& sum, const uint8_t* cell, uint32_t word) {
        return add_products<255>(sum, fill(word), load<U32>(cell));
    }
};

// Per block and head: numbers in cells, then, where there are scales, one float per token.
template <class Kv>
struct KvLayer {
    uint8_t* keys;
    uint8_t* values;
    int kv_heads;
    int block_size;  // a multiple of 16
    int dim;         // of a head, a multiple of 16 and at most kMaxDim

    using Number = typename Kv::Number;
    static constexpr int kPer = Kv::kPerWord;

    static constexpr size_t token_bytes(int dim) { return dim * sizeof(Number) + (Kv::kScaled ? sizeof(float) : 0); }

    const uint8_t* key_cells(int block, int head, int offset) const { return keys + record(block, head) + group(offset); }
    const uint8_t* value_cells(int block, int head, int offset) const { return values + record(block, head) + group(offset); }
    const float* key_scales(int block, int head, int offset) const { return scales(keys, block, head) + offset; }
    const float* value_scales(int block, int head, int offset) const { return scales(values, block, head) + offset; }

    void write_key(const int32_t* table, int head, int position, const float* key) const {
        const int block = table[position / block_size], offset = position % block_size;
        Number numbers[kMaxDim];
        const float scale = round(key, numbers, Kv::kScaled ? 128 : 0);
        Number* to = reinterpret_cast<Number*>(keys + record(block, head) + group(offset)) + offset % kLanes * kPer;
        for (int d = 0; d < dim; d++) to[d / kPer * kPer * kLanes + d % kPer] = numbers[d];
        if constexpr (Kv::kScaled) scales(keys, block, head)[offset] = scale;
    }

    void write_value(const int32_t* table, int head, int position, const float* value) const {
        const int block = table[position / block_size], offset = position % block_size;
        Number numbers[kMaxDim];
        const float scale = round(value, numbers, 0);
        Number* to = reinterpret_cast<Number*>(values + record(block, head)) + offset / kPer * kPer * dim + offset % kPer;
        for (int d = 0; d < dim; d++) to[d * kPer] = numbers[d];
        if constexpr (Kv::kScaled) scales(values, block, head)[offset] = scale;
    }

   private:
    size_t record(int block, int head) const { return (size_t(block) * kv_heads + head) * block_size * token_bytes(dim); }
    size_t group(int offset) const { return size_t(offset / kLanes * kLanes) * dim * sizeof(Number); }
    float* scales(uint8_t* from, int block, int head) const {
        return reinterpret_cast<float*>(from + record(block, head) + size_t(block_size) * dim * sizeof(Number));
    }

    // Returns the scale.
    float round(const float* from, Number* to, [[maybe_unused]] int zero) const {
        if constexpr (Kv::kScaled) return round_bytes(from, dim, zero, reinterpret_cast<int8_t*>(to));
        for (int d = 0; d < dim; d += kLanes) store_bfloat16(reinterpret_cast<uint16_t*>(to) + d, load<F32>(from + d));
        return 1.0f;
    }
};

}  // namespace inferway

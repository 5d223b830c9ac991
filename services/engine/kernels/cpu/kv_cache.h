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

struct Bfloat16Kv {
    using Number = uint16_t;
    using Sum = F32;
    static constexpr int kPerWord = 2, kZero = 0;
    static constexpr bool kScaled = false;

    static float round(const float* from, int dim, int, Number* to) {
        for (int d = 0; d < dim; d += kLanes) store_bfloat16(to + d, load<F32>(from + d));
        return 1.0f;
    }

    // sum + cell * word, the odd number of each pair first; products are exact, each addition rounds.
    template <bool kOfKeys>
    static INFERWAY_INLINE F32 dot(const F32& sum, const uint8_t* cell, uint32_t word) {
#if defined(__AVX512BF16__)
        return F32{{_mm512_dpbf16_ps(sum.part[0], as_bfloat16(cell), bits<__m512bh>(_mm512_set1_epi32(int32_t(word))))}};
#else
        const Pair pair = bfloat16_pairs(reinterpret_cast<const uint16_t*>(cell));
        return fma(pair.even, fill(bits<float>(word << 16)), fma(pair.odd, fill(bits<float>(word & 0xffff0000u)), sum));
#endif
    }
};

// Keys are kept plus 128, since one side of a product of bytes has no sign.
struct Int8Kv {
    using Number = uint8_t;
    using Sum = I32;
    static constexpr int kPerWord = 4, kZero = 128;
    static constexpr bool kScaled = true;

    // Rounds to -127 .. 127 plus `zero` and returns the scale; one that is not a number stands for a row that is not finite.
    static float round(const float* from, int dim, int zero, Number* to) {
        I32 top = fill<int32_t>(0);
        for (int d = 0; d < dim; d += kLanes) top = larger(top, magnitude(load<F32>(from + d)));
        const float most = bits<float>(largest(top)), factor = most > 0 ? 127.0f / most : 0.0f;
        for (int d = 0; d < dim; d += kLanes)
            store_bytes(to + d, shifted_bits(load<F32>(from + d) * fill(factor) + fill(kRoundingShift)) + fill<int32_t>(zero));
        return most / 127.0f + (most - most);
    }

    template <bool kOfKeys>
    static INFERWAY_INLINE I32 dot(const I32& sum, const uint8_t* cell, uint32_t word) {
        return kOfKeys ? add_products<255>(sum, load<U32>(cell), fill(word)) : add_products<255>(sum, fill(word), load<U32>(cell));
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

    const uint8_t* key_cells(int block, int head, int offset) const { return record(keys, block, head) + group(offset); }
    const uint8_t* value_cells(int block, int head, int offset) const { return record(values, block, head) + group(offset); }
    const float* key_scales(int block, int head, int offset) const { return scales(record(keys, block, head)) + offset; }
    const float* value_scales(int block, int head, int offset) const { return scales(record(values, block, head)) + offset; }

    // Keeps a token's key or value: one number in each of a row of cells.
    template <bool kIsKey>
    void write(const int32_t* table, int head, int position, const float* from) const {
        uint8_t* const to = record(kIsKey ? keys : values, table[position / block_size], head);
        const int offset = position % block_size, tokens = kIsKey ? kLanes : kPer;  // that share cells
        Number numbers[kMaxDim];
        const float scale = Kv::round(from, dim, kIsKey ? Kv::kZero : 0, numbers);
        Number* cell = reinterpret_cast<Number*>(to) + offset / tokens * tokens * dim + offset % tokens * (kIsKey ? kPer : 1);
        for (int d = 0; d < dim; d++) cell[kIsKey ? d / kPer * kPer * kLanes + d % kPer : d * kPer] = numbers[d];
        if (Kv::kScaled) scales(to)[offset] = scale;
    }

   private:
    uint8_t* record(uint8_t* from, int block, int head) const {
        return from + (size_t(block) * kv_heads + head) * block_size * token_bytes(dim);
    }
    size_t group(int offset) const { return size_t(offset / kLanes * kLanes) * dim * sizeof(Number); }
    float* scales(uint8_t* record) const { return reinterpret_cast<float*>(record + size_t(block_size) * dim * sizeof(Number)); }
};

}  // namespace inferway

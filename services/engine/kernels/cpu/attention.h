// Attention over the paged KV cache, the same for a prompt's chunk and for a single new token.
//
// Online softmax over chunks of keys that stand at fixed positions (Dao et al., "FlashAttention", 2022): what a query row gives depends on its
// own sequence only, not on the rows beside it and not on where a prompt was cut. Query heads that share a KV head are rows of one product.
#pragma once

#include <algorithm>
#include <limits>

#include "vector.h"

namespace inferway {

constexpr int kChunk = 256;  // keys whose scores are in flight
#if defined(__AVX512F__)
constexpr int kMaxQueryRows = 12;
#else
constexpr int kMaxQueryRows = 4;
#endif

// Few rows are computed for several columns at once, lest every sum waits for its own last addition: the largest divisor of `columns` that
// keeps the sums in registers.
constexpr int columns_at_once(int rows, int columns) {
    int count = std::min(4, std::max(1, kMaxQueryRows / rows));
    while (columns % count) count--;
    return count;
}

// Keys and values of one layer in bfloat16. Keys: [block][kv head][16 tokens][dim / 2][token][dim % 2], so that 16 tokens are one load;
// values: [block][kv head][token][dim].
struct KvLayer {
    uint16_t* keys;
    uint16_t* values;
    int kv_heads;
    int block_size;  // a multiple of 16

    template <int kDim>
    uint16_t* key_group(int block, int head, int offset) const {
        return keys + ((size_t(block) * kv_heads + head) * block_size + offset / kLanes * kLanes) * kDim;
    }
    template <int kDim>
    uint16_t* value(int block, int head, int offset) const {
        return values + ((size_t(block) * kv_heads + head) * block_size + offset) * kDim;
    }
    template <int kDim>
    void write_key(const int32_t* table, int head, int position, const float* from) const {
        const int block = table[position / block_size], offset = position % block_size;
        uint16_t* to = key_group<kDim>(block, head, offset) + offset % kLanes * 2;
        for (int d = 0; d < kDim; d++) to[d / 2 * 2 * kLanes + d % 2] = to_bfloat16(from[d]);
    }
    template <int kDim>
    void write_value(const int32_t* table, int head, int position, const float* from) const {
        uint16_t* to = value<kDim>(table[position / block_size], head, position % block_size);
        for (int d = 0; d < kDim; d++) to[d] = to_bfloat16(from[d]);
    }
};

// One query row: a head of a token.
struct QueryRow {
    const float* query;  // rotated and scaled
    float* out;
    int reach;  // keys it may see: those at positions 0 .. reach - 1
};

template <int kDim, int kRows>
struct AttendRows {
    const KvLayer& kv;
    const int32_t* table;
    int head;
    const QueryRow* rows;
    float (*scores)[kChunk];  // [kRows]
    float top[kRows], total[kRows], keep[kRows];

    void run() {
        for (int r = 0; r < kRows; r++) {
            top[r] = -std::numeric_limits<float>::infinity();
            total[r] = 0;
            std::fill_n(rows[r].out, kDim, 0.0f);
        }
        int reach = 0;
        for (int r = 0; r < kRows; r++) reach = std::max(reach, rows[r].reach);
        for (int first = 0; first < reach; first += kChunk) {
            const int count = std::min(kChunk, reach - first);
            score(first, count);
            for (int r = 0; r < kRows; r++) weigh(r, count);
            gather(first, count);
        }
        for (int r = 0; r < kRows; r++)
            for (int d = 0; d < kDim; d += kLanes) store(rows[r].out + d, load<F32>(rows[r].out + d) / fill(total[r]));
    }

    // Scores of `count` keys from position `first` on; keys out of a row's reach, whatever lies there, count as minus infinity.
    INFERWAY_INLINE void score(int first, int count) {
        const F32 never = fill(-std::numeric_limits<float>::infinity());
        int32_t numbers[kLanes];
        for (int i = 0; i < kLanes; i++) numbers[i] = i;
        constexpr int kColumns = columns_at_once(kRows, kChunk / kLanes);
        for (int key = 0; key < count; key += kColumns * kLanes) {
            const uint16_t* keys[kColumns];
            F32 sums[kColumns][kRows];
            for (int c = 0; c < kColumns; c++) {
                const int position = first + std::min(key + c * kLanes, (count - 1) / kLanes * kLanes);
                keys[c] = kv.key_group<kDim>(table[position / kv.block_size], head, position % kv.block_size);
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) sums[c][r] = fill(0.0f);
            }
            for (int d = 0; d < kDim; d += 2)
                INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) {
                    const Pair pair = bfloat16_pairs(keys[c] + d * kLanes);
                    INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
                        sums[c][r] = fma(pair.even, fill(rows[r].query[d]), sums[c][r]);
                        sums[c][r] = fma(pair.odd, fill(rows[r].query[d + 1]), sums[c][r]);
                    }
                }
            for (int c = 0; c < kColumns; c++)
                for (int r = 0; r < kRows; r++) {
                    const I32 reach = fill<int32_t>(rows[r].reach - first - key - c * kLanes);
                    store(scores[r] + key + c * kLanes, where_less(load<I32>(numbers), reach, sums[c][r], never));
                }
        }
    }

    // Scores become weights; what was gathered so far is to be multiplied by `keep`.
    INFERWAY_INLINE void weigh(int r, int count) {
        F32 peak = fill(-std::numeric_limits<float>::infinity()), mass = fill(0.0f);
        for (int key = 0; key < count; key += kLanes) peak = larger(peak, load<F32>(scores[r] + key));
        const float before = top[r];
        top[r] = std::max(before, largest(peak));
        for (int key = 0; key < count; key += kLanes) {
            const F32 weights = exponential(load<F32>(scores[r] + key) - fill(top[r]));
            store(scores[r] + key, weights);
            mass = mass + weights;
        }
        keep[r] = lane(exponential(fill(before - top[r])), 0);
        total[r] = total[r] * keep[r] + sum(mass);
    }

    // A position beyond every row's reach is not read: what lies there may be a stranger's.
    INFERWAY_INLINE void gather(int first, int count) {
        constexpr int kColumns = columns_at_once(kRows, kDim / kLanes);
        for (int d = 0; d < kDim; d += kColumns * kLanes) {
            F32 sums[kColumns][kRows];
            for (int c = 0; c < kColumns; c++)
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) sums[c][r] = load<F32>(rows[r].out + d + c * kLanes) * fill(keep[r]);
            for (int start = 0; start < count; start += kLanes) {
                const int position = first + start, end = std::min(count, start + kLanes);
                const uint16_t* values = kv.value<kDim>(table[position / kv.block_size], head, position % kv.block_size) + d;
                for (int key = start; key < end; key++, values += kDim)
                    INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) {
                        const F32 value = bfloat16_to_float(values + c * kLanes);
                        INFERWAY_UNROLL for (int r = 0; r < kRows; r++) sums[c][r] = fma(value, fill(scores[r][key]), sums[c][r]);
                    }
            }
            for (int c = 0; c < kColumns; c++)
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) store(rows[r].out + d + c * kLanes, sums[c][r]);
        }
    }
};

// Any number of rows of one sequence and one KV head.
template <int kDim, int kRows = kMaxQueryRows>
inline void attend(const KvLayer& kv, const int32_t* table, int head, const QueryRow* rows, int count) {
    alignas(64) float scores[kRows][kChunk];
    for (; count >= kRows; rows += kRows, count -= kRows) AttendRows<kDim, kRows>{kv, table, head, rows, scores, {}, {}, {}}.run();
    if constexpr (kRows > 1)
        if (count > 0) attend<kDim, (kRows > 4 ? kRows - kRows / 3 : kRows - 1)>(kv, table, head, rows, count);
}

}  // namespace inferway

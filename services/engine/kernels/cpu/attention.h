// Attention over the paged KV cache, the same for a prompt's chunk and for a single new token.
//
// Online softmax over chunks of keys that stand at fixed positions (Dao et al., "FlashAttention", 2022): what a query row gives depends on its
// own sequence only, not on the rows beside it and not on where a prompt was cut. Query heads that share a KV head are rows of one product.
#pragma once

#include <algorithm>
#include <limits>

#include "kv_cache.h"

namespace inferway {

constexpr int kChunk = 256;  // keys whose scores are in flight
#if defined(__AVX512F__)
constexpr int kMaxQueryRows = 12;
constexpr int kMaxSums = 24;  // that stay in registers
#else
constexpr int kMaxQueryRows = 4;
constexpr int kMaxSums = 4;
#endif

// A cell is loaded for several rows, and few rows take several columns of cells at once, lest every sum waits for its own last addition.
constexpr int columns_at_once(int sums) { return sums * 4 <= kMaxSums ? 4 : sums * 2 <= kMaxSums ? 2 : 1; }

// Keys and values of one sequence and head, of positions 0 .. reach - 1.
struct Past {
    const int32_t* table;
    int head, reach;
};

// To the second cache: the first is too small for what is on its way.
INFERWAY_INLINE void fetch(const uint8_t* cell) { __builtin_prefetch(cell, 0, 2); }

// One query row: a head of a token.
struct QueryRow {
    const float* query;  // rotated and scaled so that scores are logarithms to base two
    float* out;
    int reach;  // keys it may see: those at positions 0 .. reach - 1
};

// What a tile of rows keeps while it goes through the keys. Queries and the weights of keys are rounded to bfloat16, or beside keys and values
// of 8 bits to 8 bits and to 16 bits in two planes of bytes.
template <class Kv>
struct AttentionTile {
    static constexpr int kPlanes = Kv::kScaled ? 2 : 1;
    alignas(64) float scores[kMaxQueryRows][kChunk];
    alignas(64) uint32_t queries[kMaxQueryRows][kMaxDim / Kv::kPerWord];
    alignas(64) uint32_t weights[kPlanes][kMaxQueryRows][kChunk / Kv::kPerWord];
    float query_scale[kMaxQueryRows], weight_scale[kMaxQueryRows];
    int32_t query_total[kMaxQueryRows];
    float top[kMaxQueryRows], total[kMaxQueryRows], keep[kMaxQueryRows];
};

template <class Kv>
struct Attention {
    using Sum = typename Kv::Sum;
    static constexpr int kPer = Kv::kPerWord, kPlanes = AttentionTile<Kv>::kPlanes;

    const KvLayer<Kv>& kv;
    const int32_t* table;
    int head;
    const Past& next;  // what this thread is likely to want after this
    AttentionTile<Kv>& tile;
    const QueryRow* rows = nullptr;
    int least = 0, reach = 0;  // keys that every row sees, that any row sees

    // The largest tiles first.
    template <int kRows = kMaxQueryRows>
    void run_all(const QueryRow* all, int count) {
        for (; count >= kRows; all += kRows, count -= kRows) run<kRows>(all);
        if constexpr (kRows > 1)
            if (count > 0) run_all<(kRows > 4 ? kRows - 4 : kRows - 1)>(all, count);
    }

    template <int kRows>
    void run(const QueryRow* of) {
        rows = of;
        least = reach = rows[0].reach;
        for (int r = 0; r < kRows; r++) begin(r);
        for (int first = 0; first < reach; first += kChunk) {
            const int count = std::min(kChunk, reach - first);
            score<kRows>(first, count);
            for (int r = 0; r < kRows; r++) weigh(r, first, count);
            gather<kRows>(first, count);
        }
        for (int r = 0; r < kRows; r++)
            for (int d = 0; d < kv.dim; d += kLanes) store(rows[r].out + d, load<F32>(rows[r].out + d) / fill(tile.total[r]));
    }

    void begin(int r) {
        tile.top[r] = -std::numeric_limits<float>::infinity();
        tile.total[r] = 0;
        std::fill_n(rows[r].out, kv.dim, 0.0f);
        least = std::min(least, rows[r].reach);
        reach = std::max(reach, rows[r].reach);
        tile.query_scale[r] = Kv::round(rows[r].query, kv.dim, 0, reinterpret_cast<typename Kv::Number*>(tile.queries[r]));
        tile.query_total[r] = 0;
        if constexpr (Kv::kScaled)
            for (int d = 0; d < kv.dim; d++) tile.query_total[r] += reinterpret_cast<const int8_t*>(tile.queries[r])[d] * Kv::kZero;
    }

    // Scores of `count` keys from position `first` on; keys out of a row's reach, whatever lies there, count as minus infinity.
    template <int kRows>
    void score(int first, int count) {
        constexpr int kColumns = columns_at_once(kRows);
        const int words = kv.dim / kPer;
        for (int key = 0; key < count; key += kColumns * kLanes) {
            const uint8_t* cells[kColumns];
            const uint8_t* values[kColumns];
            const float* scales[kColumns];
            Sum sums[kColumns][kRows];
            INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) {
                const int position = first + std::min(key + c * kLanes, (count - 1) / kLanes * kLanes);
                const int block = table[position / kv.block_size], offset = position % kv.block_size;
                cells[c] = kv.key_cells(block, head, offset);
                values[c] = kv.value_cells(block, head, offset);
                scales[c] = kv.key_scales(block, head, offset);
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) sums[c][r] = Sum{};
            }
            for (int word = 0; word < words; word++) {
                INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) fetch(values[c] + word * kCell);
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++)
                    INFERWAY_UNROLL for (int c = 0; c < kColumns; c++)
                        sums[c][r] = Kv::template dot<true>(sums[c][r], cells[c] + word * kCell, tile.queries[r][word]);
            }
            INFERWAY_UNROLL for (int c = 0; c < kColumns; c++)
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) keep_score(r, first, key + c * kLanes, sums[c][r], scales[c]);
        }
    }

    INFERWAY_INLINE void keep_score(int r, int first, int key, const Sum& sum, [[maybe_unused]] const float* scales) {
        if constexpr (Kv::kScaled)
            store(tile.scores[r] + key, to_float(sum - fill(tile.query_total[r])) * fill(tile.query_scale[r]) * load<F32>(scales));
        else
            store(tile.scores[r] + key, sum);
        if (first + key + kLanes > least) hide(r, first, key);
    }

    void hide(int r, int first, int key) {
        for (int i = std::max(0, rows[r].reach - first - key); i < kLanes; i++)
            tile.scores[r][key + i] = -std::numeric_limits<float>::infinity();
    }

    // Scores become weights; what was gathered so far is to be multiplied by `keep`.
    void weigh(int r, int first, int count) {
        float* scores = tile.scores[r];
        F32 peak = fill(-std::numeric_limits<float>::infinity()), mass = fill(0.0f);
        for (int key = 0; key < count; key += kLanes) peak = larger(peak, load<F32>(scores + key));
        const float before = tile.top[r], top = tile.top[r] = std::max(before, largest(peak));
        [[maybe_unused]] I32 most = fill<int32_t>(0);
        for (int key = 0; key < count; key += kLanes) {
            const F32 weight = power_of_two(load<F32>(scores + key) - fill(top));
            mass = mass + weight;
            if constexpr (Kv::kScaled) {
                const int position = first + key;
                const float* scales = kv.value_scales(table[position / kv.block_size], head, position % kv.block_size);
                // What lies beyond the row's reach is a stranger's and may be anything.
                const F32 scaled = where_less(fill(0.0f), weight, weight * load<F32>(scales), fill(0.0f));
                store(scores + key, scaled);
                most = larger(most, magnitude(scaled));
            } else {
                store_bfloat16(reinterpret_cast<uint16_t*>(tile.weights[0][r]) + key, weight);
            }
        }
        tile.keep[r] = lane(power_of_two(fill(before - top)), 0);
        tile.total[r] = tile.total[r] * tile.keep[r] + sum(mass);
        if constexpr (Kv::kScaled) round_weights(r, count, bits<float>(largest(most)));
    }

    void round_weights(int r, int count, float most) {
        constexpr float kLargest = 65535.0f;
        const F32 factor = fill(most > 0 ? kLargest / most : 0.0f);
        for (int key = 0; key < count; key += kLanes) {
            const I32 numbers = shifted_bits(load<F32>(tile.scores[r] + key) * factor + fill(kRoundingShift));
            store_bytes(reinterpret_cast<uint8_t*>(tile.weights[0][r]) + key, numbers >> fill(8));
            store_bytes(reinterpret_cast<uint8_t*>(tile.weights[kPlanes - 1][r]) + key, numbers);
        }
        tile.weight_scale[r] = most / kLargest + (most - most);
    }

    template <int kRows>
    void gather(int first, int count) {
        constexpr int kColumns = columns_at_once(kRows * kPlanes);
        alignas(64) uint8_t copied[kMaxDim / kLanes * kCell];
        const uint8_t* last = nullptr;
        if (!Kv::kScaled && count % kPer) {
            copy_first_of_pairs(first + count - 1, copied);
            last = copied;
        }
        int column = 0;
        for (; column + kColumns <= kv.dim / kLanes; column += kColumns) gather_columns<kRows, kColumns>(first, count, column, last);
        for (; column < kv.dim / kLanes; column++) gather_columns<kRows, 1>(first, count, column, last);
    }

    template <int kRows, int kColumns>
    void gather_columns(int first, int count, int column, const uint8_t* last) {
        Sum sums[kPlanes][kColumns][kRows];
        INFERWAY_UNROLL for (int c = 0; c < kColumns; c++)
            INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
                if constexpr (Kv::kScaled)
                    sums[0][c][r] = sums[kPlanes - 1][c][r] = Sum{};
                else
                    sums[0][c][r] = load<F32>(rows[r].out + (column + c) * kLanes) * fill(tile.keep[r]);
            }
        const auto add = [&](const uint8_t* cells, int word) __attribute__((always_inline)) {
            INFERWAY_UNROLL for (int plane = 0; plane < kPlanes; plane++)
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++)
                    INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) {
                        Sum& sum = sums[plane][c][r];
                        sum = Kv::template dot<false>(sum, cells + (column + c) * kCell, tile.weights[plane][r][word]);
                    }
        };
        // Bytes beyond the last key have a weight of zero; a bfloat16 there may be no number.
        const int words = Kv::kScaled ? (count + kPer - 1) / kPer : count / kPer, stride = kv.dim / kLanes * kCell;
        for (int start = 0; start < words; start += kLanes / kPer) {
            const int position = first + start * kPer, end = std::min(words, start + kLanes / kPer);
            const uint8_t* cells = kv.value_cells(table[position / kv.block_size], head, position % kv.block_size);
            const uint8_t* ahead = keys_ahead(position, cells) + column * kCell;
            for (int word = start; word < end; word++, cells += stride, ahead += stride) {
                INFERWAY_UNROLL for (int c = 0; c < kColumns; c++) fetch(ahead + c * kCell);
                add(cells, word);
            }
        }
        if (last) add(last, words);
        INFERWAY_UNROLL for (int c = 0; c < kColumns; c++)
            INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
                float* out = rows[r].out + (column + c) * kLanes;
                if constexpr (Kv::kScaled) {
                    const F32 found = to_float((sums[0][c][r] << fill(8)) + sums[kPlanes - 1][c][r]);
                    store(out, fma(found, fill(tile.weight_scale[r]), load<F32>(out) * fill(tile.keep[r])));
                } else {
                    store(out, sums[0][c][r]);
                }
            }
    }

    // The keys that are wanted a chunk later: this past's, or else the next one's; `none` where there are none.
    const uint8_t* keys_ahead(int position, const uint8_t* none) const {
        const bool mine = position + kChunk < reach;
        const int at = mine ? position + kChunk : position % kChunk;
        if (at >= (mine ? reach : next.reach)) return none;
        return kv.key_cells((mine ? table : next.table)[at / kv.block_size], mine ? head : next.head, at % kv.block_size);
    }

    // The cells of a position whose right neighbour is a stranger's, with zeros in its place.
    void copy_first_of_pairs(int position, uint8_t* to) const {
        const int offset = position % kv.block_size, group = offset / kLanes * kLanes, columns = kv.dim / kLanes;
        const uint8_t* cells = kv.value_cells(table[position / kv.block_size], head, group) + size_t(offset - group) / kPer * columns * kCell;
        for (int i = 0; i < columns; i++) store(to + i * kCell, load<U32>(cells + i * kCell) & fill<uint32_t>(0xffffu));
    }
};

// Any number of rows of one sequence and one KV head.
template <class Kv>
inline void attend(const KvLayer<Kv>& kv, const int32_t* table, int head, const Past& next, const QueryRow* rows, int count) {
    AttentionTile<Kv> tile;
    Attention<Kv>{kv, table, head, next, tile}.run_all(rows, count);
}

}  // namespace inferway

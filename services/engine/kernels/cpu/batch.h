// What a step is given and what it lays out before it computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quantised.h"

namespace inferway {

// The structures below are mirrored in cpu_runner/native.py.
struct Shape {
    int32_t num_layers, hidden, inner, heads, kv_heads, head_dim, vocab, block_size, num_blocks, threads;
    Planes planes;
    float norm_epsilon;
};

struct Matrix {
    const void* blocks;
    int32_t format;
};

struct LayerWeights {
    const float* attention_norm;
    Matrix qkv, output;
    const float* mlp_norm;
    Matrix gate_up;  // blocks of 16 gate and 16 up outputs in turn
    Matrix down;
};

struct Weights {
    Matrix embedding;
    const LayerWeights* layers;
    const float* norm;
    Matrix head;
    const float* cosines;  // [positions][head_dim / 2]
    const float* sines;
};

// Tokens of one sequence that stand at start .. start + num_tokens - 1, of which the last `num_logits` want logits; its block table begins at
// `table` of all tables.
struct Slice {
    int32_t start, num_tokens, table, num_logits;
};

// Most query heads per KV head.
constexpr int kMaxShared = 64;

struct AttentionItem {
    int32_t slice, head, first_row, first_token, num_tokens;
};

// Row buffers that grow to the largest batch seen and stay.
struct Buffers {
    std::vector<float> hidden, qkv, wide;
    std::vector<int8_t> bytes;
    std::vector<GroupScale> scales;
    std::vector<int32_t> row_slice, row_position;
    std::vector<AttentionItem> items;
    std::vector<int32_t> head_rows;  // rows that want logits

    void fit(const Shape& shape, int rows) {
        const size_t qkv_size = size_t(shape.heads + 2 * shape.kv_heads) * shape.head_dim, most = std::max(shape.inner, shape.heads * shape.head_dim);
        const size_t widest = std::max<size_t>(most, shape.hidden);
        grow(hidden, size_t(rows) * shape.hidden);
        grow(qkv, rows * qkv_size);
        grow(wide, rows * most);
        grow(bytes, Activations::padded(rows) * widest * shape.planes);
        grow(scales, Activations::padded(rows) * widest / kGroup);
        row_slice.clear();
        row_position.clear();
        items.clear();
        head_rows.clear();
    }

   private:
    template <class T>
    static void grow(std::vector<T>& vector, size_t size) {
        if (vector.size() < size) vector.resize(size);
    }
};

// What Python asks for in one call.
struct StepCall {
    const Slice* slices;
    int num_slices;
    const int32_t* tokens;
    const int32_t* tables;
    float* logits;  // [rows that want logits][vocab rounded up to 16]
    int32_t* best;  // [rows that want logits]: the lowest token with the largest logit, -1 when the logits are not all finite
};

}  // namespace inferway

// What a step is given and what it lays out before it computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv_cache.h"
#include "quantised.h"

namespace inferway {

// The structures below are mirrored in cpu_runner/native.py.
struct Shape {
    int32_t num_layers, hidden, inner, heads, kv_heads, head_dim, vocab, block_size, num_blocks, threads;
    Planes planes;
    KvFormat kv_format;
    float norm_epsilon;
};

enum Format : int32_t { kQ4 = 0, kQ8 = 1 };

struct Matrix {
    const void* blocks;
    Format format;
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

// Neighbouring rows of one slice and a KV head.
struct AttentionItem {
    int32_t head, first_row, num_rows;
};

// Memory that grows to the largest batch seen and stays. It begins at a cache line, lest threads that write neighbouring lanes meet in one.
template <class T>
class Memory {
   public:
    void fit(size_t size) { lines_.resize(std::max(lines_.size(), (size * sizeof(T) + sizeof(Line) - 1) / sizeof(Line))); }
    T* operator+(size_t at) { return reinterpret_cast<T*>(lines_.data()) + at; }

   private:
    struct alignas(64) Line {
        char bytes[64];
    };
    std::vector<Line> lines_;
};

// Rounded rows of `inputs` or less.
struct RoundedRows {
    Memory<int8_t> bytes;
    Memory<GroupScale> scales;

    void fit(size_t rows, size_t inputs, Planes planes) {
        bytes.fit(Activations::padded(rows) * inputs * planes);
        scales.fit(Activations::padded(rows) * inputs / kGroup);
    }
    Activations of(int inputs, Planes planes) { return {bytes + 0, scales + 0, inputs, planes}; }
};

struct Buffers {
    Memory<float> hidden, qkv, attended;
    RoundedRows narrow, wide;  // what comes out of a norm; what comes out of attention and out of gate and up
    std::vector<int32_t> row_slice, row_position, row_token;  // rows that want logits come first
    std::vector<AttentionItem> items;

    void fit(const Shape& shape, size_t rows) {
        const size_t heads_width = size_t(shape.heads) * shape.head_dim;
        hidden.fit(rows * shape.hidden);
        qkv.fit(rows * (heads_width + 2 * size_t(shape.kv_heads) * shape.head_dim));
        attended.fit(rows * heads_width);
        narrow.fit(rows, shape.hidden, shape.planes);
        wide.fit(rows, std::max<size_t>(shape.inner, heads_width), shape.planes);
        for (auto* rows_of : {&row_slice, &row_position, &row_token}) rows_of->clear();
        items.clear();
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

// One step of a llama network over a flattened batch.
//
// Phases follow one another at barriers; within a phase every thread has its own rows, outputs or attention items, and no number depends on
// which thread has which. (Llama: Touvron et al., 2023. RMSNorm: Zhang and Sennrich, 2019. RoPE: Su et al., 2021. Grouped queries: Ainslie et
// al., 2023.)
#pragma once

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "attention.h"
#include "batch.h"
#include "pack.h"
#include "profile.h"
#include "team.h"

namespace inferway {

INFERWAY_INLINE std::pair<int, int> share(int total, int index, int size) {
    return {int(int64_t(total) * index / size), int(int64_t(total) * (index + 1) / size)};
}

template <class Use>
INFERWAY_INLINE void with_format(const Matrix& matrix, Use use) {
    if (matrix.format == kQ4)
        use(static_cast<const Q4*>(matrix.blocks));
    else
        use(static_cast<const Q8*>(matrix.blocks));
}

class Network {
   public:
    Network(const Shape& shape, const Weights& weights, uint16_t* kv)
        : shape_(shape), weights_(weights), layers_(weights.layers, weights.layers + shape.num_layers), kv_(kv), team_(shape.threads) {}

    void step(const StepCall& call) {
        call_ = call;
        profile_.begin();
        lay_out();
        team_.run([this](int index) {
            switch (shape_.head_dim) {
                case 16: return compute<16>(index);
                case 32: return compute<32>(index);
                case 64: return compute<64>(index);
                case 96: return compute<96>(index);
                default: return compute<128>(index);
            }
        });
    }

    Profile& profile() { return profile_; }

   private:
    void lay_out() {
        int rows = 0;
        for (int i = 0; i < call_.num_slices; i++) rows += call_.slices[i].num_tokens;
        rows_ = rows;
        buffers_.fit(shape_, rows);
        const int most_tokens = std::max(1, kMaxQueryRows / (shape_.heads / shape_.kv_heads));
        int row = 0;
        for (int i = 0; i < call_.num_slices; i++) {
            const Slice& slice = call_.slices[i];
            for (int token = 0; token < slice.num_tokens; token += most_tokens)
                for (int head = 0; head < shape_.kv_heads; head++)
                    buffers_.items.push_back({i, head, row + token, token, std::min(most_tokens, slice.num_tokens - token)});
            for (int token = 0; token < slice.num_tokens; token++) {
                buffers_.row_slice.push_back(i);
                buffers_.row_position.push_back(slice.start + token);
            }
            row += slice.num_tokens;
            for (int left = slice.num_logits; left > 0; left--) buffers_.head_rows.push_back(row - left);
        }
        for (std::atomic<int>& next : next_item_) next.store(0, std::memory_order_relaxed);
    }

    template <int kDim>
    void compute(int index) {
        const auto [first, last] = share(rows_, index, team_.size());
        for (int row = first; row < last; row++)
            with_format(weights_.embedding, [&](auto* blocks) { read_row(blocks, shape_.hidden, call_.tokens[row], hidden(row)); });
        for (int layer = 0; layer < shape_.num_layers; layer++) {
            attention<kDim>(index, layer);
            mlp(index, layers_[layer]);
        }
        head(index);
    }

    template <int kDim>
    void attention(int index, int layer) {
        const LayerWeights& weights = layers_[layer];
        const auto [first, last] = share(rows_, index, team_.size());
        const int width = (shape_.heads + 2 * shape_.kv_heads) * kDim, heads_width = shape_.heads * kDim;
        normalise(index, weights.attention_norm);
        product<1>(index, Part::kQkv, weights.qkv, shape_.hidden, width, rows_,
                   [&](int row, int unit, const F32* values) { store(&buffers_.qkv[size_t(row) * width + unit * kLanes], values[0]); });
        const KvLayer kv = kv_layer<kDim>(layer);
        for (int row = first; row < last; row++) rotate_and_keep<kDim>(kv, row, &buffers_.qkv[size_t(row) * width]);
        meet(index, Part::kRound);
        attend_items<kDim>(kv, next_item_[layer % 2]);
        meet(index, Part::kAttention);
        // Nobody takes items of this counter before the other one is used up in the next layer.
        if (index == 0) next_item_[layer % 2].store(0, std::memory_order_relaxed);
        for (int row = first; row < last; row++) round_row(row, &buffers_.wide[size_t(row) * heads_width], heads_width);
        meet(index, Part::kRound);
        add_product(index, Part::kOutput, weights.output, heads_width);
    }

    void mlp(int index, const LayerWeights& weights) {
        const auto [first, last] = share(rows_, index, team_.size());
        const F32 one = fill(1.0f), zero = fill(0.0f);
        normalise(index, weights.mlp_norm);
        product<2>(index, Part::kGateUp, weights.gate_up, shape_.hidden, shape_.inner, rows_, [&](int row, int unit, const F32* gate_up) {
            const F32 gate = gate_up[0] / (one + exponential(zero - gate_up[0]));
            store(&buffers_.wide[size_t(row) * shape_.inner + unit * kLanes], gate * gate_up[1]);
        });
        for (int row = first; row < last; row++) round_row(row, &buffers_.wide[size_t(row) * shape_.inner], shape_.inner);
        meet(index, Part::kRound);
        add_product(index, Part::kDown, weights.down, shape_.inner);
    }

    void head(int index) {
        const int count = int(buffers_.head_rows.size()), stride = (shape_.vocab + kLanes - 1) / kLanes * kLanes;
        const auto [first, last] = share(count, index, team_.size());
        for (int i = first; i < last; i++) normalise_row(i, hidden(buffers_.head_rows[i]), weights_.norm);
        meet(index, Part::kRound);
        product<1>(index, Part::kHead, weights_.head, shape_.hidden, stride, count,
                   [&](int row, int unit, const F32* values) { store(call_.logits + size_t(row) * stride + unit * kLanes, values[0]); });
        for (int i = first; i < last; i++) call_.best[i] = best(call_.logits + size_t(i) * stride);
    }

    // `outputs` per block of kBlocks; ends with a barrier.
    template <int kBlocks, class Take>
    void product(int index, Part part, const Matrix& matrix, int inputs, int outputs, int rows, Take take) {
        const auto [first, last] = share(outputs / kLanes, index, team_.size());
        with_format(matrix, [&](auto* blocks) { multiply<kBlocks>(blocks, first, last, rounded(inputs), rows, take); });
        meet(index, part);
    }

    void add_product(int index, Part part, const Matrix& matrix, int inputs) {
        product<1>(index, part, matrix, inputs, shape_.hidden, rows_, [&](int row, int unit, const F32* values) {
            float* to = hidden(row) + unit * kLanes;
            store(to, load<F32>(to) + values[0]);
        });
    }

    // Ends a phase whose work was `part`.
    void meet(int index, Part part) {
        profile_.lap(index, part);
        team_.barrier();
        profile_.lap(index, Part::kWait);
    }

    void normalise(int index, const float* weights) {
        const auto [first, last] = share(rows_, index, team_.size());
        for (int row = first; row < last; row++) normalise_row(row, hidden(row), weights);
        meet(index, Part::kRound);
    }

    void normalise_row(int to, const float* from, const float* weights) {
        F32 squares = fill(0.0f);
        for (int i = 0; i < shape_.hidden; i += kLanes) squares = fma(load<F32>(from + i), load<F32>(from + i), squares);
        const F32 factor = fill(1.0f / std::sqrt(sum(squares) / float(shape_.hidden) + shape_.norm_epsilon));
        quantise([&](int i) { return load<F32>(from + i) * factor * load<F32>(weights + i); }, rounded(shape_.hidden), to);
    }

    void round_row(int row, const float* from, int inputs) {
        quantise([&](int i) { return load<F32>(from + i); }, rounded(inputs), row);
    }

    // Turn queries and keys by their position and put keys and values into the cache.
    template <int kDim>
    void rotate_and_keep(const KvLayer& kv, int row, float* qkv) {
        const Slice& slice = call_.slices[buffers_.row_slice[row]];
        const int position = buffers_.row_position[row];
        const float scale = 1.0f / std::sqrt(float(kDim));
        const float* cosines = weights_.cosines + size_t(position) * kDim / 2;
        const float* sines = weights_.sines + size_t(position) * kDim / 2;
        for (int head = 0; head < shape_.heads + shape_.kv_heads; head++) {
            float* low = qkv + head * kDim;
            float* high = low + kDim / 2;
            const float factor = head < shape_.heads ? scale : 1.0f;
            for (int i = 0; i < kDim / 2; i++) {
                const float a = low[i], b = high[i];
                low[i] = (a * cosines[i] - b * sines[i]) * factor;
                high[i] = (b * cosines[i] + a * sines[i]) * factor;
            }
        }
        const float* keys = qkv + shape_.heads * kDim;
        for (int head = 0; head < shape_.kv_heads; head++)
            kv.write<kDim>(call_.tables + slice.table, head, position, keys + head * kDim, keys + (shape_.kv_heads + head) * kDim);
    }

    template <int kDim>
    void attend_items(const KvLayer& kv, std::atomic<int>& next) {
        const int group = shape_.heads / shape_.kv_heads, width = (shape_.heads + 2 * shape_.kv_heads) * kDim, heads_width = shape_.heads * kDim;
        const int count = int(buffers_.items.size());
        std::array<QueryRow, kMaxShared> rows;
        for (int at = next.fetch_add(1); at < count; at = next.fetch_add(1)) {
            const AttentionItem& item = buffers_.items[at];
            const Slice& slice = call_.slices[item.slice];
            int used = 0;
            for (int token = 0; token < item.num_tokens; token++)
                for (int head = item.head * group; head < (item.head + 1) * group; head++)
                    rows[used++] = {&buffers_.qkv[size_t(item.first_row + token) * width + head * kDim],
                                    &buffers_.wide[size_t(item.first_row + token) * heads_width + head * kDim],
                                    slice.start + item.first_token + token + 1};
            attend<kDim>(kv, call_.tables + slice.table, item.head, rows.data(), used);
        }
    }

    // `logits` is filled up to whole lanes with zeros, which are made to lose here.
    int32_t best(float* logits) const {
        const int padded = (shape_.vocab + kLanes - 1) / kLanes * kLanes;
        const float never = -std::numeric_limits<float>::infinity();
        F32 peak = fill(never), probe = fill(0.0f);
        for (int i = 0; i < padded; i += kLanes) probe = probe + (load<F32>(logits + i) - load<F32>(logits + i));
        std::fill(logits + shape_.vocab, logits + padded, never);
        for (int i = 0; i < padded; i += kLanes) peak = larger(peak, load<F32>(logits + i));
        if (sum(probe) != 0) return -1;
        return int32_t(std::find(logits, logits + shape_.vocab, largest(peak)) - logits);
    }

    template <int kDim>
    KvLayer kv_layer(int layer) const {
        const size_t size = size_t(shape_.num_blocks) * shape_.block_size * shape_.kv_heads * kDim;
        return {kv_ + 2 * layer * size, kv_ + (2 * layer + 1) * size, shape_.kv_heads, shape_.block_size};
    }

    float* hidden(int row) { return &buffers_.hidden[size_t(row) * shape_.hidden]; }

    Activations rounded(int inputs) { return {buffers_.bytes.data(), buffers_.scales.data(), inputs, shape_.planes}; }

    const Shape shape_;
    const Weights weights_;
    const std::vector<LayerWeights> layers_;
    uint16_t* const kv_;
    Team team_;
    Profile profile_;
    Buffers buffers_;
    StepCall call_{};
    int rows_ = 0;
    std::atomic<int> next_item_[2]{};
};

}  // namespace inferway

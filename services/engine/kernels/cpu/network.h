// One step of a llama network over a flattened batch.
//
// Phases follow one another; within a phase the threads share rows, outputs or attention items, and no number depends on which thread has which.
// (Llama: Touvron et al., 2023. RMSNorm: Zhang and Sennrich, 2019. RoPE: Su et al., 2021. Grouped queries: Ainslie et al., 2023.)
#pragma once

#include <array>
#include <vector>

#include "attention.h"
#include "batch.h"
#include "profile.h"
#include "team.h"

namespace inferway {

template <class Use>
INFERWAY_INLINE void with_format(const Matrix& matrix, Use use) {
    if (matrix.format == kQ4)
        use(static_cast<const Q4*>(matrix.blocks));
    else
        use(static_cast<const Q8*>(matrix.blocks));
}

class Network {
   public:
    Network(const Shape& shape, const Weights& weights, uint8_t* kv)
        : shape_(shape), weights_(weights), layers_(weights.layers, weights.layers + shape.num_layers), kv_(kv),
          team_(shape.threads, shape.num_layers * kPhasesPerLayer + kOtherPhases) {}

    void step(const StepCall& call) {
        call_ = call;
        profile_.begin();
        lay_out();
        team_.run([this](Team::Member& member) {
            switch (shape_.head_dim) {
                case 16: return compute<16>(member);
                case 32: return compute<32>(member);
                case 64: return compute<64>(member);
                case 96: return compute<96>(member);
                default: return compute<128>(member);
            }
        });
    }

    Profile& profile() { return profile_; }

   private:
    static constexpr int kPhasesPerLayer = 8, kOtherPhases = 4;
    static constexpr int kRowsAtOnce = 64;  // whose activations stay near while outputs go by
    using Member = Team::Member;

    // Rows and items of attention that something is computed for.
    struct Extent {
        int rows = 0, items = 0;
    };

    // Rows that want logits come first: they are all that the last layer goes on with once it has everybody's keys and values.
    void lay_out() {
        int tokens = 0;
        for (int i = 0; i < call_.num_slices; i++) tokens += call_.slices[i].num_tokens;
        buffers_.fit(shape_, tokens);
        for (const bool wanted : {true, false}) {
            for (int i = 0, before = 0; i < call_.num_slices; before += call_.slices[i++].num_tokens) {
                const int last = call_.slices[i].num_tokens, middle = last - call_.slices[i].num_logits;
                lay_out_tokens(i, before, wanted ? middle : 0, wanted ? last : middle);
            }
            (wanted ? wanted_ : all_) = {int(buffers_.row_token.size()), int(buffers_.items.size())};
        }
    }

    // Tokens first .. last - 1 of a slice that has `before` others before it.
    void lay_out_tokens(int slice, int before, int first, int last) {
        const int most_tokens = std::max(1, kMaxQueryRows / (shape_.heads / shape_.kv_heads));
        for (int token = first; token < last; token++) {
            if ((token - first) % most_tokens == 0)
                for (int head = 0; head < shape_.kv_heads; head++)
                    buffers_.items.push_back({head, int(buffers_.row_token.size()), std::min(most_tokens, last - token)});
            buffers_.row_slice.push_back(slice);
            buffers_.row_position.push_back(call_.slices[slice].start + token);
            buffers_.row_token.push_back(call_.tokens[before + token]);
        }
    }

    template <int kDim>
    void compute(Member& member) {
        each(member, Part::kRound, all_.rows, [&](int row) {
            with_format(weights_.embedding, [&](auto* blocks) { read_row(blocks, shape_.hidden, buffers_.row_token[row], hidden(row)); });
        });
        for (int layer = 0; layer < shape_.num_layers; layer++) {
            const Extent& used = layer + 1 == shape_.num_layers ? wanted_ : all_;
            attention<kDim>(member, layer, used);
            mlp(member, layers_[layer], used.rows);
        }
        head(member);
    }

    template <int kDim>
    void attention(Member& member, int layer, const Extent& used) {
        const LayerWeights& weights = layers_[layer];
        const int heads = shape_.heads + 2 * shape_.kv_heads, width = heads * kDim;
        normalise(member, weights.attention_norm, all_.rows);
        product(member, Part::kQkv, heads, all_.rows, [&](Area area) {
            constexpr int kUnits = kDim / kLanes;  // of a head
            if (area.first_row >= used.rows) area.first_unit = std::max(area.first_unit, shape_.heads);  // nobody asks
            const Area units{area.first_unit * kUnits, area.last_unit * kUnits, area.first_row, area.last_row};
            multiply_by<1>(weights.qkv, narrow(), units,
                           [&](int row, int unit, const F32* values) { store(buffers_.qkv + (size_t(row) * width + unit * kLanes), values[0]); });
            for (int row = area.first_row; row < area.last_row; row++)
                for (int head = area.first_unit; head < area.last_unit; head++)
                    rotate_or_keep<kDim>(layer, row, head, buffers_.qkv + (size_t(row) * width + head * kDim));
        });
        with_kv<kDim>(layer, [&](const auto& kv) {
            each(member, Part::kAttention, used.items, [&](int item) { attend_item<kDim>(kv, item, used.items); });
        });
        if constexpr (kDim % kGroup)
            each(member, Part::kRound, used.rows, [&](int row) { round_heads(row, 0, shape_.heads * kDim); });
        add_product(member, Part::kOutput, weights.output, shape_.heads * kDim, used.rows);
    }

    void mlp(Member& member, const LayerWeights& weights, int rows) {
        normalise(member, weights.mlp_norm, rows);
        const Activations to = wide(shape_.inner);
        product(member, Part::kGateUp, shape_.inner / kGroup, rows, [&](const Area& area) {
            multiply_by<4>(weights.gate_up, narrow(), area, [&](int row, int group, const F32* values) {
                quantise(gated(values[0], values[1]), gated(values[2], values[3]), to, row, group);
            });
        });
        add_product(member, Part::kDown, weights.down, shape_.inner, rows);
    }

    void head(Member& member) {
        const int count = wanted_.rows, stride = (shape_.vocab + kLanes - 1) / kLanes * kLanes;
        normalise(member, weights_.norm, count);
        product(member, Part::kHead, stride / kLanes, count, [&](const Area& area) {
            multiply_by<1>(weights_.head, narrow(), area,
                           [&](int row, int unit, const F32* values) { store(call_.logits + size_t(row) * stride + unit * kLanes, values[0]); });
        });
        each(member, Part::kHead, count, [&](int i) { call_.best[i] = best(call_.logits + size_t(i) * stride); });
    }

    // A phase of `total` pieces of work: rows, several of which are taken at once, or items of attention, which differ in size.
    template <class Use>
    void each(Member& member, Part part, int total, Use use) {
        const int chunk = part == Part::kAttention ? 1 : std::max(1, total / (4 * team_.size()));
        phase(member, part, total, chunk, [&](int first, int last) {
            for (int i = first; i < last; i++) use(i);
        });
    }

    // A phase that computes `units` of outputs of `rows` rows, area by area: small enough for the threads to end together.
    template <class Use>
    void product(Member& member, Part part, int units, int rows, Use use) {
        const int parts = (rows + kRowsAtOnce - 1) / kRowsAtOnce, areas = team_.size() == 1 ? 1 : team_.size() * std::clamp(rows, 8, 32);
        const int chunk = std::max(1, units * std::max(1, parts) / std::max(areas, parts)), chunks = (units + chunk - 1) / chunk;
        phase(member, part, parts * chunks, 1, [&](int first, int) {
            const int unit = first % chunks * chunk, row = first / chunks * kRowsAtOnce;
            use(Area{unit, std::min(unit + chunk, units), row, std::min(row + kRowsAtOnce, rows)});
        });
    }

    template <class Use>
    void phase(Member& member, Part part, int total, int chunk, Use use) {
        team_.share(member, total, chunk, use);
        profile_.lap(member.index, part);
        team_.meet(member, total);
        profile_.lap(member.index, Part::kWait);
    }

    template <int kBlocks, class Take>
    INFERWAY_INLINE void multiply_by(const Matrix& matrix, const Activations& x, const Area& area, Take take) {
        with_format(matrix, [&](auto* blocks) { multiply<kBlocks>(blocks, x, area, take); });
    }

    void add_product(Member& member, Part part, const Matrix& matrix, int inputs, int rows) {
        product(member, part, shape_.hidden / kLanes, rows, [&](const Area& area) {
            multiply_by<1>(matrix, wide(inputs), area, [&](int row, int unit, const F32* values) {
                float* to = hidden(row) + unit * kLanes;
                store(to, load<F32>(to) + values[0]);
            });
        });
    }

    INFERWAY_INLINE static F32 gated(const F32& gate, const F32& up) {
        return gate / (fill(1.0f) + power_of_two(gate * fill(-1.44269504f))) * up;
    }

    void normalise(Member& member, const float* weights, int rows) {
        each(member, Part::kRound, rows, [&](int row) { normalise_row(row, weights); });
    }

    void normalise_row(int row, const float* weights) {
        const float* from = hidden(row);
        F32 squares = fill(0.0f);
        for (int i = 0; i < shape_.hidden; i += kLanes) squares = fma(load<F32>(from + i), load<F32>(from + i), squares);
        const F32 factor = fill(1.0f / std::sqrt(sum(squares) / float(shape_.hidden) + shape_.norm_epsilon));
        const auto at = [&](int i) { return load<F32>(from + i) * factor * load<F32>(weights + i); };
        for (int group = 0; group < shape_.hidden / kGroup; group++)
            quantise(at(group * kGroup), at(group * kGroup + kLanes), narrow(), row, group);
    }

    // Round what attention gave for `size` values of a row.
    void round_heads(int row, int first, int size) {
        const int width = shape_.heads * shape_.head_dim;
        quantise(buffers_.attended + size_t(row) * width, wide(width), row, first / kGroup, (first + size) / kGroup);
    }

    // Turn a query or key by its position; put a key or value into the cache.
    template <int kDim>
    void rotate_or_keep(int layer, int row, int head, float* values) {
        const int position = buffers_.row_position[row], kv_head = (head - shape_.heads) % shape_.kv_heads;
        const bool is_query = head < shape_.heads, is_value = head >= shape_.heads + shape_.kv_heads;
        if (is_value) return with_kv<kDim>(layer, [&](const auto& kv) { kv.template write<false>(table(row), kv_head, position, values); });
        const float* cosines = weights_.cosines + size_t(position) * kDim / 2;
        const float* sines = weights_.sines + size_t(position) * kDim / 2;
        const float factor = is_query ? 1.44269504f / std::sqrt(float(kDim)) : 1.0f;  // scores to base two
        float* high = values + kDim / 2;
        for (int i = 0; i < kDim / 2; i++) {
            const float a = values[i], b = high[i];
            values[i] = (a * cosines[i] - b * sines[i]) * factor;
            high[i] = (b * cosines[i] + a * sines[i]) * factor;
        }
        if (!is_query) with_kv<kDim>(layer, [&](const auto& kv) { kv.template write<true>(table(row), kv_head, position, values); });
    }

    template <int kDim, class Kv>
    void attend_item(const KvLayer<Kv>& kv, int index, int num_items) {
        const AttentionItem& item = buffers_.items[index];
        const Past next = past_of(std::min(index + team_.size(), num_items - 1));  // threads take items in turns, more or less
        const int group = shape_.heads / shape_.kv_heads, width = (shape_.heads + 2 * shape_.kv_heads) * kDim, heads_width = shape_.heads * kDim;
        std::array<QueryRow, kMaxShared> rows;
        int used = 0;
        for (int row = item.first_row; row < item.first_row + item.num_rows; row++)
            for (int head = item.head * group; head < (item.head + 1) * group; head++)
                rows[used++] = {buffers_.qkv + (size_t(row) * width + head * kDim), buffers_.attended + (size_t(row) * heads_width + head * kDim),
                                buffers_.row_position[row] + 1};
        attend(kv, table(item.first_row), item.head, next, rows.data(), used);
        if constexpr (kDim % kGroup == 0)
            for (int row = item.first_row; row < item.first_row + item.num_rows; row++) round_heads(row, item.head * group * kDim, group * kDim);
    }

    // The lowest token with the largest logit, -1 when one is not finite. `logits` is filled up to whole lanes, which are made to lose here.
    int32_t best(float* logits) const {
        const int padded = (shape_.vocab + kLanes - 1) / kLanes * kLanes;
        const float never = -std::numeric_limits<float>::infinity();
        std::fill(logits + shape_.vocab, logits + padded, std::numeric_limits<float>::lowest());
        F32 peak = fill(never), probe = fill(0.0f), token = fill(0.0f), at = fill(0.0f);
        for (int i = 0; i < padded; i += kLanes, at = at + fill(1.0f)) {
            const F32 values = load<F32>(logits + i);
            probe = probe + (values - values);
            token = where_less(peak, values, at, token);
            peak = larger(peak, values);
        }
        if (sum(probe) != 0) return -1;
        const float top = largest(peak);
        int32_t lowest = padded;
        for (int i = 0; i < kLanes; i++)
            if (lane(peak, i) == top) lowest = std::min(lowest, int32_t(lane(token, i)) * kLanes + i);
        return lowest;
    }

    template <int kDim, class Use>
    INFERWAY_INLINE void with_kv(int layer, Use use) const {
        if (shape_.kv_format == kKvInt8)
            use(kv_layer<Int8Kv, kDim>(layer));
        else
            use(kv_layer<Bfloat16Kv, kDim>(layer));
    }

    template <class Kv, int kDim>
    KvLayer<Kv> kv_layer(int layer) const {
        const size_t size = size_t(shape_.num_blocks) * shape_.block_size * shape_.kv_heads * KvLayer<Kv>::token_bytes(kDim);
        return {kv_ + 2 * layer * size, kv_ + (2 * layer + 1) * size, shape_.kv_heads, shape_.block_size, kDim};
    }

    Past past_of(int index) const {
        const AttentionItem& item = buffers_.items[index];
        return {table(item.first_row), item.head, buffers_.row_position[item.first_row + item.num_rows - 1] + 1};
    }

    const int32_t* table(int row) const { return call_.tables + call_.slices[buffers_.row_slice[row]].table; }

    float* hidden(int row) { return buffers_.hidden + size_t(row) * shape_.hidden; }

    Activations narrow() { return buffers_.narrow.of(shape_.hidden, shape_.planes); }
    Activations wide(int inputs) { return buffers_.wide.of(inputs, shape_.planes); }

    const Shape shape_;
    const Weights weights_;
    const std::vector<LayerWeights> layers_;
    uint8_t* const kv_;
    Team team_;
    Profile profile_;
    Buffers buffers_;
    StepCall call_{};
    Extent all_, wanted_;
};

}  // namespace inferway

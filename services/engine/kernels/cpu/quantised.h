// Weights in eight bits or less and activations in eight or fifteen, in groups of 32 inputs.
//
// A weight matrix [outputs, inputs] is stored in blocks of 16 outputs x 32 inputs, all blocks of 16 outputs in a row, so that a product reads
// the memory once and in order. Both formats hold the values of the GGUF types of that name (Q4_1, Q8_0) without loss.
#pragma once

#include "vector.h"

namespace inferway {

constexpr int kGroup = 32;
constexpr int kQuads = kGroup / 4;

// scale * nibble + minimum; low nibbles are quad 2i, high nibbles quad 2i + 1 of [quad][output][input % 4].
struct Q4 {
    static constexpr int kZero = 0, kMost = 15;
    static constexpr bool kHasMinimum = true;
    uint8_t nibbles[kQuads / 2][64];
    uint16_t scale[kLanes];
    uint16_t minimum[kLanes];
};

// scale * (byte - 128).
struct Q8 {
    static constexpr int kZero = 128, kMost = 255;
    static constexpr bool kHasMinimum = false;
    uint8_t bytes[kQuads][64];
    uint16_t scale[kLanes];
};

// How finely activations are rounded: to one byte, or to 128 * high byte + low byte with a low byte of at most 64.
enum Planes : int32_t { kOneByte = 1, kTwoBytes = 2 };
constexpr int32_t kLowBits = 7;

constexpr float largest_number(int planes) { return planes == kOneByte ? 127.0f : 127.0f * 128.0f + 63.0f; }

// One group of one row of activations: value = scale * number.
struct GroupScale {
    float scale;
    float weighted;  // scale * sum, what a weight's minimum is multiplied by
    int32_t sum;     // of the numbers
};

#if defined(__AVX512F__)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

// Rows of activations in groups of 32; what a tile of rows reads lies together: [row / kTileRows][group][row % kTileRows][plane][32].
struct Activations {
    int8_t* bytes;
    GroupScale* scales;
    int inputs;
    Planes planes;

    static size_t padded(size_t rows) { return (rows + kTileRows - 1) / kTileRows * kTileRows; }
    int groups() const { return inputs / kGroup; }
    int group_bytes() const { return kGroup * planes; }
    size_t at(int row, int group) const { return (size_t(row / kTileRows) * groups() + group) * kTileRows + row % kTileRows; }
};

// Four inputs of 16 outputs each: quads 2i and 2i + 1 of a block.
INFERWAY_INLINE void unpack(const Q8& block, int i, U32* out) {
    out[0] = load<U32>(block.bytes[2 * i]);
    out[1] = load<U32>(block.bytes[2 * i + 1]);
}

INFERWAY_INLINE void unpack(const Q4& block, int i, U32* out) {
    const U32 both = load<U32>(block.nibbles[i]), low = fill(0x0f0f0f0fu);
    out[0] = both & low;
    out[1] = (both >> fill(4u)) & low;
}

// Per output and row: sum over the group of (weight byte - kZero) * number, exact; x holds each row's planes, the high one first. Rows take
// turns within a quad, lest every sum waits for itself.
template <class Format, int kPlanes, int kRows>
INFERWAY_INLINE void dots(const Format& block, const int8_t* x, const GroupScale* scales, I32* sums) {
    INFERWAY_UNROLL for (int r = 0; r < kRows; r++) sums[r] = fill<int32_t>(0);
    INFERWAY_UNROLL for (int plane = 0; plane < kPlanes; plane++) {
        INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
            if (plane > 0) sums[r] = sums[r] << fill(kLowBits);
            if (plane == kPlanes - 1) sums[r] = sums[r] + fill(-Format::kZero * scales[r].sum);
        }
        INFERWAY_UNROLL for (int i = 0; i < kQuads / 2; i++) {
            U32 two[2];
            unpack(block, i, two);
            INFERWAY_UNROLL for (int j = 0; j < 2; j++)
                INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
                    const uint32_t numbers = load<uint32_t>(x + (r * kPlanes + plane) * kGroup + 8 * i + 4 * j);
                    sums[r] = add_products<Format::kMost>(sums[r], two[j], fill(numbers));
                }
        }
    }
}

constexpr int kAhead = 8;  // blocks that are on their way from memory while one is used

// 16 outputs of `kRows` rows from `row`, the first of a tile, on. Every row goes through the same operations in the same order whatever kRows is.
template <class Format, int kPlanes, int kRows>
INFERWAY_INLINE void tile(const Format* blocks, const Activations& x, int row, F32* out) {
    const int groups = x.groups();
    F32 total[kRows];
    INFERWAY_UNROLL for (int r = 0; r < kRows; r++) total[r] = fill(0.0f);
    for (int group = 0; group < groups; group++) {
        const Format& block = blocks[group];
        for (size_t line = 0; line < sizeof block; line += 64) __builtin_prefetch(reinterpret_cast<const char*>(&block + kAhead) + line);
        const GroupScale* scales = x.scales + x.at(row, group);
        I32 sums[kRows];
        dots<Format, kPlanes, kRows>(block, x.bytes + x.at(row, group) * (kGroup * kPlanes), scales, sums);
        const F32 scale = halves_to_float(block.scale);
        INFERWAY_UNROLL for (int r = 0; r < kRows; r++) {
            total[r] = fma(to_float(sums[r]), scale * fill(scales[r].scale), total[r]);
            if constexpr (Format::kHasMinimum) total[r] = fma(halves_to_float(block.minimum), fill(scales[r].weighted), total[r]);
        }
    }
    INFERWAY_UNROLL for (int r = 0; r < kRows; r++) out[r] = total[r];
}

template <class Format, int kPlanes, int kRows>
inline void tile_of(int rows, const Format* blocks, const Activations& x, int row, F32* out) {
    if (rows == kRows) return tile<Format, kPlanes, kRows>(blocks, x, row, out);
    if constexpr (kRows > 1) return tile_of<Format, kPlanes, kRows - 1>(rows, blocks, x, row, out);
}

// Outputs of a product: units of some blocks of 16 and rows, of which the first begins a tile.
struct Area {
    int first_unit, last_unit, first_row, last_row;
};

// Calls take(row, unit, values) with kBlocks x 16 neighbouring outputs of every row and unit of the area.
template <int kBlocks, class Format, class Take>
inline void multiply(const Format* weights, const Activations& x, const Area& area, Take take) {
    F32 values[kBlocks][kTileRows];
    for (int unit = area.first_unit; unit < area.last_unit; unit++)
        for (int row = area.first_row; row < area.last_row; row += kTileRows) {
            const int count = area.last_row - row < kTileRows ? area.last_row - row : kTileRows;
            for (int block = 0; block < kBlocks; block++) {
                const Format* blocks = weights + (size_t(unit) * kBlocks + block) * x.groups();
                if (x.planes == kOneByte)
                    tile_of<Format, kOneByte, kTileRows>(count, blocks, x, row, values[block]);
                else
                    tile_of<Format, kTwoBytes, kTileRows>(count, blocks, x, row, values[block]);
            }
            for (int r = 0; r < count; r++) {
                F32 one[kBlocks];
                for (int block = 0; block < kBlocks; block++) one[block] = values[block][r];
                take(row + r, unit, one);
            }
        }
}

INFERWAY_INLINE void store_planes(int8_t* to, const I32& numbers, Planes planes) {
    if (planes == kOneByte) return store_bytes(to, numbers);
    const I32 high = (numbers + fill<int32_t>(1 << (kLowBits - 1))) >> fill(kLowBits);
    store_bytes(to, high);
    store_bytes(to + kGroup, numbers - (high << fill(kLowBits)));
}

// Round the 32 values a, b of one row and group. A group that is not finite gets a scale that is not a number.
INFERWAY_INLINE void quantise(const F32& a, const F32& b, const Activations& to, int row, int group) {
    const float most = largest_number(to.planes), top = bits<float>(largest(larger(magnitude(a), magnitude(b))));
    const F32 factor = fill(top > 0 ? most / top : 0.0f), shift = fill(kRoundingShift);
    const I32 first = shifted_bits(a * factor + shift), second = shifted_bits(b * factor + shift);
    int8_t* bytes = to.bytes + to.at(row, group) * to.group_bytes();
    store_planes(bytes, first, to.planes);
    store_planes(bytes + kLanes, second, to.planes);
    const int32_t total = sum(first + second);
    const float scale = top / most + (top - top);
    to.scales[to.at(row, group)] = {scale, scale * float(total), total};
}

// Round groups first .. last - 1 of one row of floats.
inline void quantise(const float* from, const Activations& to, int row, int first, int last) {
    for (int group = first; group < last; group++)
        quantise(load<F32>(from + group * kGroup), load<F32>(from + group * kGroup + kLanes), to, row, group);
}

// One row of a matrix as floats: how tokens become vectors.
template <class Format>
inline void read_row(const Format* weights, int inputs, int row, float* to) {
    const Format* blocks = weights + size_t(row / kLanes) * (inputs / kGroup);
    const int output = row % kLanes;
    for (int group = 0; group < inputs / kGroup; group++) {
        const Format& block = blocks[group];
        U32 quads[kQuads];
        for (int i = 0; i < kQuads / 2; i++) unpack(block, i, quads + 2 * i);
        uint8_t bytes[kQuads][64];
        std::memcpy(bytes, quads, sizeof bytes);
        const float scale = _cvtsh_ss(block.scale[output]);
        float minimum = 0;
        if constexpr (Format::kHasMinimum) minimum = _cvtsh_ss(block.minimum[output]);
        for (int i = 0; i < kGroup; i++) to[group * kGroup + i] = scale * float(bytes[i / 4][4 * output + i % 4] - Format::kZero) + minimum;
    }
}

}  // namespace inferway

// Turns a float matrix into blocks: without loss when its groups are values of Q4_1 or Q8_0, else rounded to eight bits.
#pragma once

#include <algorithm>
#include <cmath>

#include "quantised.h"

namespace inferway {

enum Format : int32_t { kQ4 = 0, kQ8 = 1 };

INFERWAY_INLINE uint16_t float_to_half(float value) { return _cvtss_sh(value, 0); }  // to nearest even

// One group of 32 inputs of one output.
struct PackedGroup {
    uint8_t bytes[kGroup];
    uint16_t scale, minimum;
};

// Q4_1's smallest and largest value of a group are its nibbles 0 and 15. Returns whether every value came back bit for bit.
inline bool pack_q4(const float* from, PackedGroup& to) {
    const auto [low, high] = std::minmax_element(from, from + kGroup);
    to.minimum = float_to_half(*low);
    to.scale = float_to_half((*high - *low) / 15.0f);
    const float scale = _cvtsh_ss(to.scale), minimum = _cvtsh_ss(to.minimum), factor = scale > 0 ? 1.0f / scale : 0.0f;
    bool exact = true;
    for (int i = 0; i < kGroup; i++) {
        const float rounded = std::nearbyint((from[i] - minimum) * factor), nibble = rounded > 0.0f ? std::min(rounded, 15.0f) : 0.0f;
        to.bytes[i] = uint8_t(nibble);
        exact = exact && scale * nibble + minimum == from[i];
    }
    return exact;
}

inline bool pack_q8(const float* from, PackedGroup& to) {
    float top = 0;
    for (int i = 0; i < kGroup; i++) top = from[i] == from[i] ? std::max(top, std::fabs(from[i])) : from[i];
    to.scale = float_to_half(top / 127.0f);
    const float scale = _cvtsh_ss(to.scale), factor = scale > 0 ? 1.0f / scale : 0.0f;
    bool exact = true;
    for (int i = 0; i < kGroup; i++) {
        const float rounded = std::nearbyint(from[i] * factor);
        const float byte = rounded >= -127.0f ? std::min(rounded, 127.0f) : -127.0f;
        to.bytes[i] = uint8_t(int(byte) + Q8::kZero);
        exact = exact && scale * byte == from[i];
    }
    return exact;
}

inline void place(const PackedGroup& group, Q4& block, int output) {
    for (int i = 0; i < kGroup; i++) {
        uint8_t& pair = block.nibbles[i / 8][4 * output + i % 4];
        pair = i / 4 % 2 ? uint8_t((pair & 15) | (group.bytes[i] << 4)) : uint8_t((pair & 0xf0) | group.bytes[i]);
    }
    block.scale[output] = group.scale;
    block.minimum[output] = group.minimum;
}

inline void place(const PackedGroup& group, Q8& block, int output) {
    for (int i = 0; i < kGroup; i++) block.bytes[i / 4][4 * output + i % 4] = group.bytes[i];
    block.scale[output] = group.scale;
}

// Fills blocks [ceil(outputs / 16)][inputs / 32]; outputs that fill up the last block give zero. Returns whether no value changed.
template <class Block, class PackGroup>
inline bool pack(const float* from, int64_t outputs, int64_t inputs, Block* blocks, PackGroup pack_group) {
    const int64_t groups = inputs / kGroup, padded = (outputs + kLanes - 1) / kLanes * kLanes;
    const float zeros[kGroup] = {};
    bool exact = true;
    for (int64_t output = 0; output < padded; output++)
        for (int64_t group = 0; group < groups; group++) {
            PackedGroup packed;
            exact &= pack_group(output < outputs ? from + output * inputs + group * kGroup : zeros, packed);
            place(packed, blocks[output / kLanes * groups + group], int(output % kLanes));
        }
    return exact;
}

}  // namespace inferway

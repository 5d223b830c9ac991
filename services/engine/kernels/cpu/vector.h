// Sixteen numbers that are computed together, written once: the build's instruction set decides whether they are one register or two.
//
// `fma` is the only place where a product and a sum may be rounded once. The build forbids the compiler to join any others, so that a row gives
// the same bits in a tile of one and in a tile of eight.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>

#include <immintrin.h>

namespace inferway {

constexpr int kLanes = 16;

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#else
constexpr int kWidth = 8;
#endif
constexpr int kParts = kLanes / kWidth;

template <class T>
struct Lanes {
    typedef T Part __attribute__((vector_size(kWidth * sizeof(T))));
    Part part[kParts];
};
using F32 = Lanes<float>;
using I32 = Lanes<int32_t>;
using U32 = Lanes<uint32_t>;

#define INFERWAY_INLINE inline __attribute__((always_inline))
// Before a loop over rows of a tile: its sums must stay in registers.
#define INFERWAY_UNROLL _Pragma("GCC unroll 16")

template <class V>
INFERWAY_INLINE V load(const void* from) {
    V value;
    if constexpr (requires { value.part; })  // one by one, lest GCC goes by way of the stack
        for (int i = 0; i < kParts; i++) value.part[i] = load<typename V::Part>(static_cast<const char*>(from) + i * sizeof value.part[i]);
    else
        std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
INFERWAY_INLINE void store(void* to, const Lanes<T>& value) {
    std::memcpy(to, &value, sizeof value);
}

template <class To, class From>
INFERWAY_INLINE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class T>
INFERWAY_INLINE Lanes<T> fill(T value) {
    Lanes<T> result;
    for (int i = 0; i < kParts; i++) result.part[i] = value - typename Lanes<T>::Part{};
    return result;
}

#define INFERWAY_LANES_OPERATOR(op)                                                                   \
    template <class T>                                                                                \
    INFERWAY_INLINE Lanes<T> operator op(const Lanes<T>& a, const Lanes<T>& b) {                      \
        Lanes<T> result;                                                                              \
        for (int i = 0; i < kParts; i++) result.part[i] = a.part[i] op b.part[i];                     \
        return result;                                                                                \
    }
INFERWAY_LANES_OPERATOR(+)
INFERWAY_LANES_OPERATOR(-)
INFERWAY_LANES_OPERATOR(*)
INFERWAY_LANES_OPERATOR(/)
INFERWAY_LANES_OPERATOR(&)
INFERWAY_LANES_OPERATOR(<<)
INFERWAY_LANES_OPERATOR(>>)  // arithmetic where lanes are signed
#undef INFERWAY_LANES_OPERATOR

// Per lane: a < b ? yes : no. A lane that is not a number compares as false.
template <class T>
INFERWAY_INLINE Lanes<T> where_less(const Lanes<T>& a, const Lanes<T>& b, const Lanes<T>& yes, const Lanes<T>& no) {
    Lanes<T> result;
    for (int i = 0; i < kParts; i++) result.part[i] = (a.part[i] < b.part[i]) ? yes.part[i] : no.part[i];
    return result;
}

template <class T>
INFERWAY_INLINE Lanes<T> larger(const Lanes<T>& a, const Lanes<T>& b) {
    return where_less(a, b, b, a);
}

// Magnitudes as the integers that their bits are: in the same order, with infinity and what is no number at the end.
INFERWAY_INLINE I32 magnitude(const F32& a) { return bits<I32>(bits<U32>(a) & fill<uint32_t>(0x7fffffffu)); }

INFERWAY_INLINE F32 fma(const F32& a, const F32& b, const F32& c) {
#if defined(__AVX512F__)
    return F32{{_mm512_fmadd_ps(a.part[0], b.part[0], c.part[0])}};
#else
    return F32{{_mm256_fmadd_ps(a.part[0], b.part[0], c.part[0]), _mm256_fmadd_ps(a.part[1], b.part[1], c.part[1])}};
#endif
}

INFERWAY_INLINE F32 to_float(const I32& a) {
    F32 result;
    for (int i = 0; i < kParts; i++) result.part[i] = __builtin_convertvector(a.part[i], F32::Part);
    return result;
}

template <class T>
INFERWAY_INLINE T lane(const Lanes<T>& a, int index) {
    return a.part[index / kWidth][index % kWidth];
}

// The halves joined, then their halves, and so on: in one order whatever the instruction set.
template <int kHalf, class Part, class Join, int... kIndex>
INFERWAY_INLINE auto join_halves(const Part& a, Join join, std::integer_sequence<int, kIndex...> all) {
    const Part joined = join(a, Part{a[kIndex ^ kHalf]...});
    if constexpr (kHalf > 1)
        return join_halves<kHalf / 2>(joined, join, all);
    else
        return joined[0];
}

template <class T, class Join>
INFERWAY_INLINE T reduce(const Lanes<T>& a, Join join) {
    auto values = a.part[0];
    for (int i = 1; i < kParts; i++) values = join(values, a.part[i]);
    return join_halves<kWidth / 2>(values, join, std::make_integer_sequence<int, kWidth>());
}

template <class T>
INFERWAY_INLINE T sum(const Lanes<T>& a) {
    return reduce(a, [](auto x, auto y) { return x + y; });
}

template <class T>
INFERWAY_INLINE T largest(const Lanes<T>& a) {
    return reduce(a, [](auto x, auto y) { return x < y ? y : x; });
}

// Adding this moves the integer part of a float of moderate size into its low bits, rounded to nearest even.
constexpr float kRoundingShift = 12582912.0f;

INFERWAY_INLINE I32 shifted_bits(const F32& shifted) { return bits<I32>(shifted) - fill<int32_t>(0x4b400000); }

// 2^x within 2e-7 of the value for x in [-64, 126]; 0 below, 2^126 above, not a number stays so.
INFERWAY_INLINE F32 power_of_two(const F32& x) {
    const F32 low = fill(-64.0f), high = fill(126.0f), inside = where_less(x, low, low, where_less(high, x, high, x));
    const F32 shifted = inside + fill(kRoundingShift), rest = inside - (shifted - fill(kRoundingShift));
    F32 series = fill(1.32647241e-3f);
    for (float factor : {9.67151289e-3f, 5.55073375e-2f, 0.240222421f, 0.693146978f, 1.0f}) series = fma(series, rest, fill(factor));
    const U32 power = bits<U32>(shifted_bits(shifted) + fill<int32_t>(127)) << fill(23u);
    return where_less(x, low, fill(0.0f), series * bits<F32>(power));
}

// The low byte of every lane.
INFERWAY_INLINE void store_bytes(void* to, const I32& a) {
#if defined(__AVX512F__)
    _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(a.part[0])));
#else
    for (int i = 0; i < kLanes; i++) static_cast<int8_t*>(to)[i] = int8_t(lane(a, i));
#endif
}

// IEEE half precision.
INFERWAY_INLINE F32 halves_to_float(const uint16_t* from) {
#if defined(__AVX512F__)
    return F32{{_mm512_cvtph_ps(load<__m256i>(from))}};
#else
    return F32{{_mm256_cvtph_ps(load<__m128i>(from)), _mm256_cvtph_ps(load<__m128i>(from + 8))}};
#endif
}

// Per lane: sum + the four bytes without sign of `a`, at most kMost, times those with sign of `b`; exact.
template <int kMost>
INFERWAY_INLINE I32 add_products(const I32& sum, const U32& a, const U32& b) {
#if defined(__AVX512VNNI__)
    return bits<I32>(_mm512_dpbusd_epi32(bits<__m512i>(sum), bits<__m512i>(a), bits<__m512i>(b)));
#else
    I32 result = sum;
    for (int i = 0; i < kParts; i++) {
        const __m256i bytes = bits<__m256i>(a.part[i]), others = bits<__m256i>(b.part[i]);
        __m256i products;
        if constexpr (kMost < 128) {
            products = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, others), _mm256_set1_epi16(1));
        } else {  // pairs of such products do not fit into 16 bits
            const __m256i even = _mm256_madd_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(others, 8), 8));
            products = _mm256_add_epi32(even, _mm256_madd_epi16(_mm256_srli_epi16(bytes, 8), _mm256_srai_epi16(others, 8)));
        }
        result.part[i] = result.part[i] + bits<I32::Part>(products);
    }
    return result;
#endif
}

// bfloat16, rounded to nearest even.
INFERWAY_INLINE uint16_t to_bfloat16(float value) {
    const uint32_t raw = bits<uint32_t>(value);
    return value != value ? 0x7fc0 : uint16_t((raw + 0x7fff + ((raw >> 16) & 1)) >> 16);
}

// Two neighbours per lane.
struct Pair {
    F32 even, odd;
};

INFERWAY_INLINE Pair bfloat16_pairs(const uint16_t* from) {
    const U32 raw = load<U32>(from);
    return {bits<F32>(raw << fill(16u)), bits<F32>(raw & fill<uint32_t>(0xffff0000u))};
}

}  // namespace inferway

// Sixteen numbers that are computed together, written once: the build's instruction set decides whether they are one, two or four registers.
//
// `fma` is the only place where a product and a sum may be rounded once. The build forbids the compiler to join any others, so that a row gives
// the same bits in a tile of one and in a tile of eight.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inferway {

constexpr int kLanes = 16;

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
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
#undef INFERWAY_LANES_OPERATOR

template <class T>
INFERWAY_INLINE Lanes<T> operator<<(const Lanes<T>& a, int count) {
    Lanes<T> result;
    for (int i = 0; i < kParts; i++) result.part[i] = a.part[i] << count;
    return result;
}

// Arithmetic where lanes are signed.
template <class T>
INFERWAY_INLINE Lanes<T> operator>>(const Lanes<T>& a, int count) {
    Lanes<T> result;
    for (int i = 0; i < kParts; i++) result.part[i] = a.part[i] >> count;
    return result;
}

// Per lane: a < b ? yes : no. A lane that is not a number compares as false.
template <class T>
INFERWAY_INLINE F32 where_less(const Lanes<T>& a, const Lanes<T>& b, const F32& yes, const F32& no) {
    F32 result;
    for (int i = 0; i < kParts; i++) result.part[i] = (a.part[i] < b.part[i]) ? yes.part[i] : no.part[i];
    return result;
}

INFERWAY_INLINE F32 larger(const F32& a, const F32& b) { return where_less(a, b, b, a); }

INFERWAY_INLINE F32 magnitude(const F32& a) { return bits<F32>(bits<U32>(a) & fill<uint32_t>(0x7fffffffu)); }

INFERWAY_INLINE F32 fma(const F32& a, const F32& b, const F32& c) {
#if defined(__AVX512F__)
    return F32{{_mm512_fmadd_ps(a.part[0], b.part[0], c.part[0])}};
#elif defined(__AVX2__)
    return F32{{_mm256_fmadd_ps(a.part[0], b.part[0], c.part[0]), _mm256_fmadd_ps(a.part[1], b.part[1], c.part[1])}};
#else
    return a * b + c;
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

// Pairwise, in one order whatever the instruction set.
template <class T, class Join>
INFERWAY_INLINE T reduce(const Lanes<T>& a, Join join) {
    T values[kLanes];
    store(values, a);
    for (int half = kLanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) values[i] = join(values[i], values[i + half]);
    return values[0];
}

INFERWAY_INLINE float sum(const F32& a) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(a.part[0]);
#else
    return reduce(a, [](float x, float y) { return x + y; });
#endif
}

INFERWAY_INLINE float largest(const F32& a) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(a.part[0]);
#else
    return reduce(a, [](float x, float y) { return x < y ? y : x; });
#endif
}

INFERWAY_INLINE int32_t sum(const I32& a) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32(reinterpret_cast<__m512i>(a.part[0]));
#else
    return reduce(a, [](int32_t x, int32_t y) { return x + y; });
#endif
}

// Adding this moves the integer part of a float of moderate size into its low bits, rounded to nearest even.
constexpr float kRoundingShift = 12582912.0f;

INFERWAY_INLINE I32 shifted_bits(const F32& shifted) { return bits<I32>(shifted) - fill<int32_t>(0x4b400000); }

// e^x within 2 ulp for x in [-87, 88]; 0 below, e^88 above, not a number stays so.
INFERWAY_INLINE F32 exponential(const F32& x) {
    const F32 low = fill(-87.0f), high = fill(88.0f);
    const F32 inside = where_less(x, low, low, where_less(high, x, high, x));
    const F32 shifted = fma(inside, fill(1.44269504f), fill(kRoundingShift));
    const F32 whole = shifted - fill(kRoundingShift);
    const F32 rest = fma(whole, fill(-1.42860682e-6f), fma(whole, fill(-0.693145751953125f), inside));
    F32 series = fill(1.38888889e-3f);
    for (float factor : {8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f, 1.0f, 1.0f}) series = fma(series, rest, fill(factor));
    const U32 power = bits<U32>(shifted_bits(shifted) + fill<int32_t>(127)) << 23;
    return where_less(x, low, fill(0.0f), series * bits<F32>(power));
}

// The low byte of every lane.
INFERWAY_INLINE void store_bytes(int8_t* to, const I32& a) {
#if defined(__AVX512F__)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(a.part[0])));
#else
    int32_t wide[kLanes];
    store(wide, a);
    for (int i = 0; i < kLanes; i++) to[i] = int8_t(wide[i]);
#endif
}

// IEEE half precision.
INFERWAY_INLINE float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000u) << 16, rest = half & 0x7fffu;
    const float scaled = bits<float>(rest << 13) * 0x1p112f;
    const uint32_t special = rest >= 0x7c00u ? 0x7f800000u | (rest << 13) : bits<uint32_t>(scaled);
    return bits<float>(sign | special);
}

INFERWAY_INLINE F32 halves_to_float(const uint16_t* from) {
#if defined(__AVX512F__)
    return F32{{_mm512_cvtph_ps(load<__m256i>(from))}};
#elif defined(__AVX2__)
    return F32{{_mm256_cvtph_ps(load<__m128i>(from)), _mm256_cvtph_ps(load<__m128i>(from + 8))}};
#else
    float values[kLanes];
    for (int i = 0; i < kLanes; i++) values[i] = half_to_float(from[i]);
    return load<F32>(values);
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
    return {bits<F32>(raw << 16), bits<F32>(raw & fill<uint32_t>(0xffff0000u))};
}

INFERWAY_INLINE F32 bfloat16_to_float(const uint16_t* from) {
#if defined(__AVX512F__)
    return F32{{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load<__m256i>(from)), 16))}};
#else
    uint32_t values[kLanes];
    for (int i = 0; i < kLanes; i++) values[i] = uint32_t(from[i]) << 16;
    return load<F32>(values);
#endif
}

}  // namespace inferway

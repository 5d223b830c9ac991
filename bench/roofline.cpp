// How fast this machine reads memory and multiplies, and how fast the engine's own products are: for bench/roofline.py.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "../services/engine/kernels/cpu/quantised.h"

using namespace inferway;

namespace {

using Clock = std::chrono::steady_clock;

// Least seconds of `repeats` runs of work(thread) on all threads at once, from the first start to the last end.
double least(int threads, int repeats, const std::function<void(int)>& work) {
    std::barrier<> all(threads);
    double best = 1e30;
    const auto serve = [&](int index) {
        for (int round = 0; round < repeats; round++) {
            all.arrive_and_wait();
            const auto begin = Clock::now();
            work(index);
            all.arrive_and_wait();
            if (index == 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
        }
    };
    std::vector<std::thread> others;
    for (int index = 1; index < threads; index++) others.emplace_back(serve, index);
    serve(0);
    for (std::thread& other : others) other.join();
    return best;
}

#if defined(__AVX512VNNI__)
constexpr int kChains = 16, kTurns = 20000;

__m512i turn(__m512i sum, __m512i x) { return _mm512_dpbusd_epi32(sum, x, x); }
#if defined(__AVX512BF16__)
__m512 turn(__m512 sum, __m512 x) { return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(x)); }
#endif

template <class Register>
void multiply_registers(Register x) {
    Register sums[kChains] = {};
    for (int i = 0; i < kTurns; i++) {
        INFERWAY_UNROLL for (int c = 0; c < kChains; c++) {
            sums[c] = turn(sums[c], x);
            asm volatile("" : "+v"(sums[c]));
        }
    }
}
#endif

}  // namespace

extern "C" {

// Bytes per second of reading `bytes` of memory, shared out to the threads.
double roofline_read(int64_t bytes, int32_t threads, int32_t repeats) {
    const size_t words = size_t(bytes) / sizeof(uint64_t) / size_t(threads) / 64 * 64;
    std::vector<std::vector<uint64_t>> memory(size_t(threads), std::vector<uint64_t>(words, 1));
    const double seconds = least(threads, repeats, [&](int index) {
        using Line = uint64_t __attribute__((vector_size(64), aligned(8)));
        const uint64_t* from = memory[size_t(index)].data();
        Line sums[4] = {};
        for (size_t i = 0; i < words; i += 32)
            for (int j = 0; j < 4; j++) sums[j] ^= *reinterpret_cast<const Line*>(from + i + 8 * j);
        asm volatile("" : : "r"(sums) : "memory");
    });
    return double(words) * sizeof(uint64_t) * threads / seconds;
}

// Operations (a product or a sum is one) per second in registers: of bytes, or of bfloat16 pairs; 0 where the CPU has no such instruction.
double roofline_registers(int32_t bfloat16, int32_t threads, int32_t repeats) {
#if defined(__AVX512VNNI__)
    const double operations = double(kTurns) * kChains * threads;
    if (!bfloat16) return 128.0 * operations / least(threads, repeats, [](int) { multiply_registers(_mm512_set1_epi8(1)); });
#if defined(__AVX512BF16__)
    return 64.0 * operations / least(threads, repeats, [](int) { multiply_registers(_mm512_set1_ps(0)); });
#endif
#endif
    (void)bfloat16, (void)threads, (void)repeats;
    return 0;
}

// Operations per second of the engine's product of `rows` rows of activations with Q4 weights [outputs, inputs].
double roofline_product(int32_t planes, int32_t outputs, int32_t inputs, int32_t rows, int32_t threads, int32_t repeats) {
    const int units = outputs / kLanes, groups = inputs / kGroup;
    std::vector<float> values(size_t(rows) * inputs);
    for (size_t i = 0; i < values.size(); i++) values[i] = float(i * 2654435761u % 1000) / 1000.0f - 0.5f;
    std::vector<Q4> blocks(size_t(units) * groups + kAhead);
    for (size_t i = 0; i < blocks.size(); i++) {
        std::memset(blocks[i].nibbles, int(i * 151 % 256), sizeof blocks[i].nibbles);
        for (auto* halves : {blocks[i].scale, blocks[i].minimum}) std::fill_n(halves, kLanes, uint16_t(0x1c00));  // a 256th
    }
    std::vector<int8_t> bytes(Activations::padded(size_t(rows)) * inputs * planes);
    std::vector<GroupScale> scales(Activations::padded(size_t(rows)) * groups);
    const Activations x{bytes.data(), scales.data(), inputs, Planes(planes)};
    for (int row = 0; row < rows; row++) quantise(&values[size_t(row) * inputs], x, row, 0, groups);
    std::vector<float> out(size_t(rows) * outputs);
    const double seconds = least(threads, repeats, [&](int index) {
        multiply<1>(blocks.data(), x, Area{units * index / threads, units * (index + 1) / threads, 0, rows},
                    [&](int row, int unit, const F32* found) { store(&out[size_t(row) * outputs + unit * kLanes], found[0]); });
    });
    return 2.0 * rows * outputs * inputs / seconds;
}
}

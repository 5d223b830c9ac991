// Where the time of a step goes, as the calling thread sees it; costs nothing until somebody asks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace inferway {

// Mirrored in cpu_runner/native.py.
enum class Part { kRound, kQkv, kAttention, kOutput, kGateUp, kDown, kHead, kWait, kCount };

class Profile {
   public:
    using Nanoseconds = std::array<int64_t, size_t(Part::kCount)>;

    // What was counted since the last call; the first one starts the count.
    Nanoseconds take() {
        on_ = true;
        const Nanoseconds taken = spent_;
        spent_ = {};
        return taken;
    }

    void begin() {
        if (on_) last_ = Clock::now();
    }

    // What the thread did since the last call was `part`.
    void lap(int thread, Part part) {
        if (!on_ || thread != 0) return;
        const auto now = Clock::now();
        spent_[size_t(part)] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
        last_ = now;
    }

   private:
    using Clock = std::chrono::steady_clock;
    bool on_ = false;
    Clock::time_point last_;
    Nanoseconds spent_{};
};

}  // namespace inferway

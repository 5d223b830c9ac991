// The threads of a step: the caller and a fixed number of others, which sleep between steps and share the work of every phase within one.
//
// A phase is over when all its work is done, not when all threads have come: a thread that the system keeps from running holds up the others only
// if it has taken work, and then no longer than they need to fall asleep and leave their CPU to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include <immintrin.h>

namespace inferway {

class Team {
   public:
    // A thread's place in a step.
    struct Member {
        int index;
        int phase = 0;
    };
    using Work = std::function<void(Member&)>;

    Team(int size, int max_phases) : size_(size), phases_(max_phases) {
        for (int index = 1; index < size; index++) threads_.emplace_back([this, index](std::stop_token end) { serve(index, end); });
    }

    int size() const { return size_; }

    // Runs `work` on the caller and on those that wake up in time; all must go through the same phases. Returns when everybody has left it.
    // One call at a time; `work` must not throw.
    void run(const Work& work) {
        for (Phase& phase : phases_) {
            phase.next.store(0, std::memory_order_relaxed);
            phase.done.store(0, std::memory_order_relaxed);
        }
        open(&work);
        Member caller{0};
        work(caller);
        open(nullptr);
        wait(inside_, [](int inside) { return inside == 0; });
    }

    // The member's next phase: use(first, last) for parts of 0 .. total - 1, at most `chunk` long, until none is left.
    template <class Use>
    void share(Member& member, int total, int chunk, Use use) {
        Phase& phase = phases_[member.phase];
        int done = 0;
        for (int first; (first = phase.next.fetch_add(chunk, std::memory_order_relaxed)) < total;) {
            const int last = std::min(first + chunk, total);
            use(first, last);
            done += last - first;
        }
        if (done > 0 && phase.done.fetch_add(done, std::memory_order_acq_rel) + done == total) phase.done.notify_all();
    }

    // Ends the member's phase: returns once all of its work is done.
    void meet(Member& member, int total) {
        wait(phases_[member.phase++].done, [total](int done) { return done >= total; });
    }

   private:
    struct alignas(64) Phase {
        std::atomic<int> next{0}, done{0};
    };

    static constexpr int kAwake = 1000;  // some tens of microseconds

    template <class Until>
    static void wait(std::atomic<int>& value, Until until) {
        for (int tries = 0; tries < kAwake; tries++) {
            if (until(value.load(std::memory_order_acquire))) return;
            _mm_pause();
        }
        for (int seen; !until(seen = value.load(std::memory_order_acquire));) value.wait(seen, std::memory_order_acquire);
    }

    // Members may enter `work` from now on; none may when it is null.
    void open(const Work* work) {
        if (size_ == 1) return;
        {
            std::lock_guard guard(lock_);
            work_ = work;
            round_ += work != nullptr;
        }
        if (work) called_.notify_all();
    }

    void serve(int index, std::stop_token end) {
        for (unsigned done = 0;;) {
            const Work* work;
            {
                std::unique_lock guard(lock_);
                if (!called_.wait(guard, end, [&] { return work_ && round_ != done; })) return;
                done = round_;
                work = work_;
                inside_.fetch_add(1, std::memory_order_relaxed);
            }
            Member member{index};
            (*work)(member);
            if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) inside_.notify_all();
        }
    }

    const int size_;
    std::vector<Phase> phases_;
    std::mutex lock_;
    std::condition_variable_any called_;
    const Work* work_ = nullptr;
    unsigned round_ = 0;
    std::atomic<int> inside_{0};
    std::vector<std::jthread> threads_;  // the last: they end before what they use
};

}  // namespace inferway

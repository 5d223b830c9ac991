// The threads of a step: the caller and a fixed number of others, which sleep between steps and meet at barriers within one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inferway {

class Team {
   public:
    explicit Team(int size) : size_(size) {
        try {
            for (int index = 1; index < size; index++) members_.emplace_back([this, index] { serve(index); });
        } catch (...) {
            end();
            throw;
        }
    }

    ~Team() { end(); }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Runs work(index) on every thread and returns when all are done. One call at a time; `work` must not throw.
    void run(const std::function<void(int)>& work) {
        if (size_ > 1) {
            {
                std::lock_guard guard(lock_);
                work_ = &work;
                round_++;
            }
            called_.notify_all();
        }
        work(0);
        barrier();
    }

    // Returns once every thread has called it. Waits a few microseconds awake, since the others are about to come, then lets others run.
    void barrier() {
        if (size_ == 1) return;
        const unsigned phase = phase_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            phase_.store(phase + 1, std::memory_order_release);
            return;
        }
        for (int tries = 0; phase_.load(std::memory_order_acquire) == phase; tries++) {
            if (tries < kAwake)
                pause();
            else
                std::this_thread::yield();
        }
    }

   private:
    static constexpr int kAwake = 2000;

    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }

    void end() {
        {
            std::lock_guard guard(lock_);
            ending_ = true;
        }
        called_.notify_all();
        for (std::thread& member : members_) member.join();
    }

    void serve(int index) {
        unsigned done = 0;
        while (true) {
            const std::function<void(int)>* work;
            {
                std::unique_lock guard(lock_);
                called_.wait(guard, [&] { return ending_ || round_ != done; });
                if (ending_) return;
                done = round_;
                work = work_;
            }
            (*work)(index);
            barrier();
        }
    }

    const int size_;
    std::vector<std::thread> members_;
    std::mutex lock_;
    std::condition_variable called_;
    const std::function<void(int)>* work_ = nullptr;
    unsigned round_ = 0;
    bool ending_ = false;
    std::atomic<int> arrived_{0};
    std::atomic<unsigned> phase_{0};
};

}  // namespace inferway

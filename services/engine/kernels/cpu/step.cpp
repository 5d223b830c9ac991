// The C interface through which Python computes steps.
#include <exception>
#include <new>

#include "network.h"

extern "C" {

using namespace inferway;

// `weights` and everything it points to must outlive the network; null when there is no memory or there are no threads.
void* inferway_open(const Shape* shape, const Weights* weights, uint8_t* kv) {
    try {
        return new Network(*shape, *weights, kv);
    } catch (const std::exception&) {
        return nullptr;
    }
}

// Returns 0, or 1 when there is no memory for the batch; nothing is computed then.
int32_t inferway_step(void* network, const Slice* slices, int32_t num_slices, const int32_t* tokens, const int32_t* tables, float* logits,
                      int32_t* best) {
    try {
        static_cast<Network*>(network)->step({slices, num_slices, tokens, tables, logits, best});
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

// Writes the nanoseconds of every `Part` since the last call; the first call starts the count.
void inferway_profile(void* network, int64_t* nanoseconds) {
    const Profile::Nanoseconds taken = static_cast<Network*>(network)->profile().take();
    std::copy(taken.begin(), taken.end(), nanoseconds);
}

void inferway_close(void* network) { delete static_cast<Network*>(network); }
}

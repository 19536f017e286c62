// Plain C entry points; no torch, no Python. The same source is built once per instruction set.
#include "adjoint.h"

#define ENTRY(NAME, S, T)                                                                          \
  void attnlab_av_##NAME(const Problem* p, int64_t channels, const S* maps, int64_t maps_batch,    \
                         const S* x, int64_t x_batch, S* y) {                                      \
    av<S, T>(*p, channels, maps, maps_batch, x, x_batch, y);                                       \
  }                                                                                                \
  void attnlab_qk_##NAME(const Problem* p, int64_t channels, const S* q, int64_t q_batch,          \
                         const S* x, int64_t x_batch, S* maps) {                                   \
    qk<S, T>(*p, channels, q, q_batch, x, x_batch, maps);                                          \
  }                                                                                                \
  void attnlab_sc_##NAME(const Problem* p, int64_t channels, const S* maps, int64_t maps_batch,    \
                         const S* y, int64_t y_batch, S* gx) {                                     \
    sc<S, T>(*p, channels, maps, maps_batch, y, y_batch, gx);                                      \
  }

extern "C" {
ENTRY(float32, float, float)
ENTRY(float64, double, double)
ENTRY(bfloat16, bfloat16, float)

int attnlab_vector_bytes() { return VECTOR_BYTES; }
}

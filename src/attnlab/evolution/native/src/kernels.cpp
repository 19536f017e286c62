// Plain C entry points; no torch, no Python. The same source is built once per instruction set.
#include "aggregate.h"
#include "attention_backward.h"
#include "scores.h"

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
  }                                                                                                \
  void attnlab_spanned_av_##NAME(const Problem* p, int64_t channels, int64_t depth,                \
                                 const T* weight, const T* bias, const S* features,                \
                                 int64_t features_batch, const S* x, int64_t x_batch, S* y) {      \
    spanned_av<S, T>(*p, channels, depth, weight, bias, features, features_batch, x, x_batch, y);  \
  }                                                                                                \
  void attnlab_spanned_sc_##NAME(const Problem* p, int64_t channels, int64_t depth,                \
                                 const T* weight, const T* bias, const S* features,                \
                                 int64_t features_batch, const S* y, int64_t y_batch, S* gx) {     \
    spanned_sc<S, T>(*p, channels, depth, weight, bias, features, features_batch, y, y_batch, gx); \
  }                                                                                                \
  void attnlab_attention_##NAME(const Problem* p, const Attention* at, const S* q,                 \
                                int64_t q_batch, const S* k, int64_t k_batch, const S* v,          \
                                int64_t v_batch, S* out, T* stats) {                               \
    attention<S, T>(*p, *at, q, q_batch, k, k_batch, v, v_batch, out, stats);                      \
  }                                                                                                \
  void attnlab_attention_backward_##NAME(                                                          \
      const Problem* p, const Attention* at, const S* q, int64_t q_batch, const S* k,              \
      int64_t k_batch, const S* v, int64_t v_batch, const T* stats, const S* grad,                 \
      int64_t grad_batch, S* gq, int64_t gq_batch, S* gk, int64_t gk_batch, S* gv,                 \
      int64_t gv_batch, T* bias, T* row, T* column) {                                              \
    attention_backward<S, T>(*p, *at, q, q_batch, k, k_batch, v, v_batch, stats, grad, grad_batch, \
                             gq, gq_batch, gk, gk_batch, gv, gv_batch, {bias, row, column});       \
  }

extern "C" {
ENTRY(float32, float, float)
ENTRY(float64, double, double)
ENTRY(bfloat16, bfloat16, float)

int attnlab_vector_bytes() { return VECTOR_BYTES; }
}

// The problem as the caller states it, and how a window walks over rows and columns.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "partial.h"

// Mirrors attnlab.evolution.native.abi.Problem. One plane of a channel is contiguous, the next is
// `plane` (of the input) or `out_plane` (of the output, and of the next tap of maps) further on: in a
// video they are the frames of one moment. Maps of a group have `group_taps` planes, of which a call
// takes kernel_h * kernel_w; `accumulate` adds to the output of av and sc what other calls put there.
struct Problem {
  int64_t batch, groups;
  int64_t height, width, out_height, out_width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int64_t plane, out_plane, group_taps, accumulate;
  int64_t threads;
  int64_t taps() const { return kernel_h * kernel_w; }
};

static inline int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static inline int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
static inline int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

struct Free {
  void operator()(void* p) const { free(p); }
};
template <class T>
struct Buffer {
  std::unique_ptr<T, Free> data;
  explicit Buffer(int64_t count, bool zero = false) {
    const size_t bytes = size_t(round_up((count + LANES<T>) * int64_t(sizeof(T)), 64));
    data.reset(static_cast<T*>(aligned_alloc(64, bytes)));
    if (zero) memset(data.get(), 0, bytes);
  }
  T* get() const { return data.get(); }
};

// Rows that one pass computes together. Output rows h0 + r * apart read input rows
// s*h0 - p + d*(kh + r*step), so that neighbouring rows of the block share what they read.
struct RowBlocks {
  int64_t apart, step;
  RowBlocks(int64_t stride, int64_t dilation) {
    const int64_t common = std::gcd(stride, dilation);
    apart = dilation / common;
    step = stride / common;
  }
};

// A strip of output columns that one vector holds. Where the row is at least a vector wide the last
// strip begins early and overlaps the one before it: no partial loads or stores. `fresh` is the
// first lane that no earlier strip had.
struct Strip {
  int64_t begin, lanes, fresh;
};
template <class T, class F>
static inline void for_strips(int64_t width, F f) {
  for (int64_t w = 0; w < width; w += LANES<T>) {
    const int64_t begin = std::max<int64_t>(0, std::min<int64_t>(w, width - LANES<T>));
    f(Strip{begin, std::min<int64_t>(LANES<T>, width - begin), w - begin});
  }
}

// Write the lanes of a strip, or add them; lanes that an earlier strip had are added once.
template <class S, class T>
static inline void put_as(const Problem& p, S* to, Vector<T> value, Strip strip, T zero) {
  if (p.accumulate) {
    const Vector<T> before = load_first(to, strip.lanes, zero);
    Mask<T> fresh;
    for (int lane = 0; lane < LANES<T>; lane++) fresh[lane] = lane >= strip.fresh ? -1 : 0;
    value = fresh ? before + value : before;
  }
  store_first(to, value, strip.lanes, zero);
}
static inline void put(const Problem& p, float* to, Vector<float> value, Strip strip) {
  put_as(p, to, value, strip, 0.0f);
}
static inline void put(const Problem& p, bfloat16* to, Vector<float> value, Strip strip) {
  put_as(p, to, value, strip, 0.0f);
}
static inline void put(const Problem& p, double* to, Vector<double> value, Strip strip) {
  put_as(p, to, value, strip, 0.0);
}

// One row of taps: where the shifted operand and the weights of that row begin, and which output
// rows [first, last) of the block it serves.
template <class T>
struct RowTap {
  const T* x;
  const T* w;
  int64_t first, last;
};
// Column taps whose offsets grow evenly: one run without stride, one per column phase with it.
struct Run {
  int64_t x, x_step, w, w_step, count;
};

// Aggregation with maps that are a product of weights and features, as involution's are: a few rows
// of one group's maps are made where they are used, and never written to memory.
#pragma once
#include "layouts.h"

// to[n][r] = bias[n] + sum over d of weight[n][d] * features[d][r], for `N` neighbouring taps and
// `R` rows.
template <class T, int R, int N, class Store>
static inline __attribute__((always_inline)) void span_of(const T* features, int64_t depth,
                                                          const T* weight, const T* bias,
                                                          Store store_to) {
  Vector<T> acc[R][N];
#pragma GCC unroll 8
  for (int n = 0; n < N; n++) {
    acc[0][n] = bias ? splat(bias[n]) : Vector<T>{};
#pragma GCC unroll 4
    for (int r = 1; r < R; r++) acc[r][n] = acc[0][n];
  }
  for (int64_t d = 0; d < depth; d++, features += ROWS * LANES<T>) {
    Vector<T> value[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) value[r] = load(features + r * LANES<T>);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      Vector<T> one = splat(weight[n * depth + d]);
      KEEP(one);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) acc[r][n] += one * value[r];
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; n++)
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) store_to(n, r, acc[r][n]);
}

// Maps (groups * taps, pixels) = weight (groups * taps, depth) · features (depth, pixels) + bias.
template <class S, class T>
struct SpannedMaps {
  const T *weight, *bias;  // no bias: null
  int64_t depth;
  const S* features;
  int64_t batch;
  static constexpr bool stored = false;

  // What one thread makes maps with: the features of the pixels that it is at.
  struct Maker {
    const SpannedMaps& of;
    Buffer<T> features;
    explicit Maker(const SpannedMaps& given) : of(given), features(given.depth * ROWS * LANES<T>) {}

    // Rows h, h + apart, ... of taps [first, last): store_to(tap, row, vector) for every one.
    template <class Store>
    void make(const Problem& p, int64_t b, int64_t g, int64_t h, int64_t apart, int64_t rows,
              Strip strip, int64_t first, int64_t last, Store store_to) const {
      const S* from = of.features + b * of.batch + h * p.out_width + strip.begin;
      for (int64_t d = 0; d < of.depth; d++)
        for (int64_t r = 0; r < rows; r++)
          store(features.get() + (d * ROWS + r) * LANES<T>,
                load_first(from + d * p.out_plane + r * apart * p.out_width, strip.lanes, T()));
      const int64_t before = g * p.group_taps;
      if (rows == 3) taps<3>(before, first, last, store_to);
      if (rows == 2) taps<2>(before, first, last, store_to);
      if (rows == 1) taps<1>(before, first, last, store_to);
    }
    template <int R, class Store>
    void taps(int64_t before, int64_t first, int64_t last, Store store_to) const {
      for_channel_blocks(last - first, [&](auto block, int64_t offset) {
        const int64_t tap = first + offset, row = before + tap;
        span_of<T, R, block.value>(
            features.get(), of.depth, of.weight + row * of.depth, of.bias ? of.bias + row : nullptr,
            [&](int64_t n, int64_t r, Vector<T> value) { store_to(tap + n, r, value); });
      });
    }
    void pack(const Packed<T>& packed, const Problem& p, const RowBlocks& blocks, int64_t b, int64_t g,
              int64_t h, int64_t rows, const RowTap<T>*, int) const {
      // Rows of taps that reach into the image from the last or from the first row.
      const int64_t above = p.pad_h - p.stride_h * (h + blocks.apart * (rows - 1));
      const int64_t below = p.height - 1 + p.pad_h - p.stride_h * h;
      const int64_t first = std::max<int64_t>(0, ceil_div(above, p.dilation_h));
      const int64_t last = std::min(p.kernel_h, floor_div(below, p.dilation_h) + 1);
      const int64_t next_row = packed.at(blocks.step, 0, 1, 0) - packed.to;
      for (int s = 0; s < packed.strip_count; s++)
        make(p, b, g, h, blocks.apart, rows, packed.strips[s], first * p.kernel_w, last * p.kernel_w,
             [&](int64_t tap, int64_t r, Vector<T> value) {
               store(packed.at(0, tap, 0, s) + r * next_row, value);
             });
    }
    void fill(const Ring<T>& ring, const Margins<T>& margins, const Problem& p, int64_t b, int64_t g,
              int64_t h, int64_t rows) const {
      T* to[ROWS] = {};
      for (int64_t r = 0; r < rows; r++) to[r] = ring.row(h + r) + margins.margin;
      for_strips<T>(p.out_width, [&](Strip strip) {
        make(p, b, g, h, 1, rows, strip, 0, p.taps(), [&](int64_t tap, int64_t r, Vector<T> value) {
          store_first(to[r] + tap * margins.pitch + strip.begin, value, strip.lanes, T());
        });
      });
    }
  };
  Maker for_thread() const { return Maker(*this); }
};
static_assert(ROWS == 3, "make() has a case for each number of rows");

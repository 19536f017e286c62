// How the primitives (see attnlab/evolution/primitives.py) cut the maps of one group of one image.
#pragma once
#include <type_traits>
#include <vector>

#include "micro.h"
#include "planes.h"

#if defined(__AVX512VL__)  // 32 registers, whatever their width
constexpr int CHANNEL_BLOCK = 8;
#else
constexpr int CHANNEL_BLOCK = 4;
#endif
constexpr int ROWS = 3;
// Strips that are worked on together, so that what they share stays in the first-level cache.
constexpr int TILE_STRIPS = 2;
// Copies of a group's planes should stay in the second-level cache.
constexpr int64_t CACHE_BYTES = 256 * 1024;

// How many output rows one task takes: few enough for the cache and for every thread to have work.
static inline int64_t rows_per_task(const Problem& p, int64_t rows, int64_t row_bytes) {
  const int64_t by_cache = std::max<int64_t>(8, CACHE_BYTES / std::max<int64_t>(row_bytes, 1));
  const int64_t wanted = ceil_div(2 * p.threads, p.batch * p.groups);
  const int64_t by_threads = p.threads > 1 ? std::max<int64_t>(8, ceil_div(rows, wanted)) : rows;
  const int64_t most = std::min({rows, by_cache, by_threads});
  return ceil_div(rows, ceil_div(rows, most));
}

// Blocks of at most ROWS output rows that share input rows: f(first row, number of rows).
template <class F>
static inline void for_row_blocks(const RowBlocks& blocks, int64_t begin, int64_t end, F f) {
  for (int64_t base = begin; base < end; base += blocks.apart * ROWS)
    for (int64_t h = base; h < std::min(base + blocks.apart, end); h++)
      f(h, std::min<int64_t>(ROWS, ceil_div(end - h, blocks.apart)));
}

// Groups of neighbouring strips: f(strips, count).
template <class T, class F>
static inline void for_tiles(int64_t width, F f) {
  Strip strips[TILE_STRIPS];
  int count = 0;
  for_strips<T>(width, [&](Strip strip) {
    strips[count++] = strip;
    if (count == TILE_STRIPS || strip.begin + strip.lanes >= width) {
      f(strips, count);
      count = 0;
    }
  });
}

// The input rows that a block reads, with the rows of the block each serves. `w` of the row tap at
// distance rr is w + rr * w_row_tap. Rows outside the image are left out; `outside(rr, first, last)`
// hears of them.
template <class T, class F>
static inline int row_taps(RowTap<T>* out, const Problem& p, const RowBlocks& blocks, int64_t h,
                           int64_t rows, const T* x, const Planes<T>& planes, const T* w,
                           int64_t w_row_tap, F outside) {
  int count = 0;
  for (int64_t rr = 0; rr < p.kernel_h + blocks.step * (ROWS - 1); rr++) {
    const int64_t first = std::max<int64_t>(0, ceil_div(rr - p.kernel_h + 1, blocks.step));
    const int64_t last = std::min(rows, rr / blocks.step + 1);
    if (first >= last) continue;
    const int64_t row = p.stride_h * h - p.pad_h + p.dilation_h * rr;
    if (row < 0 || row >= p.height)
      outside(rr, first, last);
    else
      out[count++] = {x + planes.row(row), w + rr * w_row_tap, first, last};
  }
  return count;
}

template <class T, int C, class Store>
static inline void accumulate_channels(const RowTap<T>* rows, int row_count, const Run* runs,
                                       int run_count, int64_t x_shift, int64_t w_shift,
                                       int64_t plane, int64_t w_row, int64_t begin, Store store_to) {
  Vector<T> acc[ROWS][C];
  accumulate<T, ROWS, C>(acc, rows, row_count, runs, run_count, x_shift + begin * plane, w_shift,
                         plane, w_row);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < C; c++) store_to(r, begin + c, acc[r][c]);
}
// Calls f(block, first channel) for blocks of channels whose size is a constant.
template <class F>
static inline void for_channel_blocks(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + CHANNEL_BLOCK <= channels; c += CHANNEL_BLOCK)
    f(std::integral_constant<int, CHANNEL_BLOCK>(), c);
  for (; c + 2 <= channels; c += 2) f(std::integral_constant<int, 2>(), c);
  for (; c < channels; c++) f(std::integral_constant<int, 1>(), c);
}
// store_to(r, c, vector) for every channel; the caller ignores rows beyond its block.
template <class T, class Store>
static inline void accumulate_all(const RowTap<T>* rows, int row_count, const Run* runs,
                                  int run_count, int64_t x_shift, int64_t w_shift, int64_t plane,
                                  int64_t w_row, int64_t channels, Store store_to) {
  for_channel_blocks(channels, [&](auto block, int64_t c) {
    accumulate_channels<T, block.value>(rows, row_count, runs, run_count, x_shift, w_shift, plane,
                                        w_row, c, store_to);
  });
}

struct Span {
  int64_t begin, end;
};
// Input rows that output rows [begin, end) read.
static inline Span input_rows(const Problem& p, int64_t begin, int64_t end) {
  const int64_t first = p.stride_h * begin - p.pad_h;
  const int64_t last = p.stride_h * (end - 1) - p.pad_h + p.dilation_h * (p.kernel_h - 1);
  const int64_t from = std::min(std::max<int64_t>(0, first), p.height);
  return {from, std::max(from, std::min(p.height, last + 1))};
}

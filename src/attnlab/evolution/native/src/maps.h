// The three primitives on maps of one group of one image: see attnlab/evolution/primitives.py.
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

// y[c, i] = sum_k a[k, i] x[c, i + k]
template <class S, class T>
static void av(const Problem& p, int64_t channels, const S* maps, int64_t maps_batch, const S* x,
               int64_t x_batch, S* y) {
  const RowBlocks blocks(p.stride_h, p.dilation_h);
  const int64_t row_bytes = channels * (p.width + 16) * p.stride_h * int64_t(sizeof(T));
  const int64_t rows_each = rows_per_task(p, p.out_height, row_bytes);
  const int64_t tasks_each = ceil_div(p.out_height, rows_each);
  const int64_t image = p.out_plane, taps = p.kernel_h + blocks.step * (ROWS - 1);
  // Maps of one channel are read once: straight from where they are. Others are packed first.
  const bool direct = std::is_same<S, T>::value && p.out_width >= LANES<T> && channels < 4;
#pragma omp parallel num_threads(p.threads)
  {
    Planes<T> planes(p, std::min(p.height, input_rows(p, 0, rows_each).end + p.pad_h + p.stride_h));
    const int64_t strip_size = taps * p.kernel_w * ROWS * LANES<T>;
    Buffer<T> scratch(channels * planes.plane, true), packed(strip_size * TILE_STRIPS);
    std::vector<RowTap<T>> rows(taps);
    std::vector<Run> runs(p.kernel_w);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p.batch * p.groups * tasks_each; task++) {
      const int64_t begin = task % tasks_each * rows_each;
      const int64_t end = std::min(p.out_height, begin + rows_each);
      const int64_t b = task / tasks_each / p.groups, g = task / tasks_each % p.groups;
      const Span span = input_rows(p, begin, end);
      planes.fill(scratch.get(), x + b * x_batch + g * channels * p.plane, channels, p, span.begin,
                  span.end);
      const S* a = maps + b * maps_batch + g * p.group_taps * image;
      S* out = y + (b * p.groups + g) * channels * image;
      const int run_count = planes.runs(runs.data(), p, direct ? image : ROWS * LANES<T>);
      for_row_blocks(blocks, begin, end, [&](int64_t h, int64_t in_block) {
        const int64_t row_step = blocks.apart * p.out_width;
        const T* w = direct ? reinterpret_cast<const T*>(a) + h * p.out_width : packed.get();
        const int64_t w_row_tap = p.kernel_w * (direct ? image : ROWS * LANES<T>);
        const int64_t w_row = direct ? row_step - blocks.step * w_row_tap : LANES<T>;
        const int count = row_taps(rows.data(), p, blocks, h, in_block, scratch.get(), planes, w,
                                   w_row_tap, [](int64_t, int64_t, int64_t) {});
        for_tiles<T>(p.out_width, [&](const Strip* strips, int strip_count) {
          if (!direct)
            for (int i = 0; i < count; i++) {
              T* to = const_cast<T*>(rows[i].w);
              const int64_t rr = (rows[i].w - w) / w_row_tap;
              for (int64_t v = 0; v < p.kernel_w; v++)
                for (int64_t r = rows[i].first; r < rows[i].last; r++) {
                  const S* from = a + ((rr - r * blocks.step) * p.kernel_w + v) * image +
                                  h * p.out_width + r * row_step;
                  for (int s = 0; s < strip_count; s++) {
                    store(to + s * strip_size + (v * ROWS + r) * LANES<T>,
                          load_first(from + strips[s].begin, strips[s].lanes, T()));
                    __builtin_prefetch(from + ROWS * row_step + strips[s].begin, 0, 2);
                  }
                }
            }
          for_channel_blocks(channels, [&](auto block, int64_t c) {
            for (int s = 0; s < strip_count; s++) {
              const Strip strip = strips[s];
              accumulate_channels<T, block.value>(
                  rows.data(), count, runs.data(), run_count, strip.begin,
                  direct ? strip.begin : s * strip_size, planes.plane, w_row, c,
                  [&](int64_t r, int64_t c, Vector<T> value) {
                    if (r < in_block)
                      put(p, out + c * image + h * p.out_width + r * row_step + strip.begin, value,
                          strip);
                  });
            }
          });
        });
      });
    }
  }
}

// a[k, i] = sum_c q[c, i] x[c, i + k]
template <class S, class T>
static void qk(const Problem& p, int64_t channels, const S* q, int64_t q_batch, const S* x,
               int64_t x_batch, S* maps) {
  const RowBlocks blocks(p.stride_h, p.dilation_h);
  const int64_t row_bytes = channels * (p.width + 16) * p.stride_h * int64_t(sizeof(T));
  const int64_t rows_each = rows_per_task(p, p.out_height, row_bytes);
  const int64_t tasks_each = ceil_div(p.out_height, rows_each);
  const int64_t image = p.out_plane, taps = p.kernel_h + blocks.step * (ROWS - 1);
  const bool direct = std::is_same<S, T>::value;  // write products where they belong
#pragma omp parallel num_threads(p.threads)
  {
    Planes<T> planes(p, std::min(p.height, input_rows(p, 0, rows_each).end + p.pad_h + p.stride_h));
    Buffer<T> scratch(channels * planes.plane, true), packed(taps * p.kernel_w * ROWS * LANES<T>);
    Buffer<T> queries(channels * ROWS * LANES<T>, true);
    std::vector<RowTap<T>> rows(taps);
    std::vector<Run> runs(p.kernel_w);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p.batch * p.groups * tasks_each; task++) {
      const int64_t begin = task % tasks_each * rows_each;
      const int64_t end = std::min(p.out_height, begin + rows_each);
      const int64_t b = task / tasks_each / p.groups, g = task / tasks_each % p.groups;
      const Span span = input_rows(p, begin, end);
      planes.fill(scratch.get(), x + b * x_batch + g * channels * p.plane, channels, p, span.begin,
                  span.end);
      const S* query = q + b * q_batch + g * channels * image;
      S* out = maps + (b * p.groups + g) * p.group_taps * image;
      const int run_count = planes.runs(runs.data(), p, direct ? image : ROWS * LANES<T>);
      for_row_blocks(blocks, begin, end, [&](int64_t h, int64_t in_block) {
        const int64_t row_step = blocks.apart * p.out_width;
        const T* to = direct ? reinterpret_cast<const T*>(out) + h * p.out_width : packed.get();
        const int64_t to_row_tap = p.kernel_w * (direct ? image : ROWS * LANES<T>);
        const int64_t to_row = direct ? row_step - blocks.step * to_row_tap : LANES<T>;
        auto row_of = [&](int64_t rr, int64_t r) {
          return out + (rr - r * blocks.step) * p.kernel_w * image + h * p.out_width + r * row_step;
        };
        const int count = row_taps(
            rows.data(), p, blocks, h, in_block, scratch.get(), planes, to, to_row_tap,
            [&](int64_t rr, int64_t first, int64_t last) {
              for (int64_t r = first; r < last; r++)
                for (int64_t v = 0; v < p.kernel_w; v++)
                  memset(row_of(rr, r) + v * image, 0, sizeof(S) * p.out_width);
            });
        for_strips<T>(p.out_width, [&](Strip strip) {
          for (int64_t c = 0; c < channels; c++)
            for (int64_t r = 0; r < in_block; r++)
              store(queries.get() + (c * ROWS + r) * LANES<T>,
                    load_first(query + c * image + h * p.out_width + r * row_step + strip.begin,
                               strip.lanes, T()));
          products<T, ROWS>(rows.data(), count, runs.data(), run_count, strip.begin,
                            direct ? strip.begin : 0, queries.get(), channels, planes.plane, to_row,
                            direct ? strip.lanes : LANES<T>);
          if (!direct)
            for (int i = 0; i < count; i++) {
              const int64_t rr = (rows[i].w - to) / to_row_tap;
              for (int64_t r = rows[i].first; r < rows[i].last; r++)
                for (int64_t v = 0; v < p.kernel_w; v++)
                  store_first(row_of(rr, r) + v * image + strip.begin,
                              load(rows[i].w + (v * ROWS + r) * LANES<T>), strip.lanes, T());
            }
        });
      });
    }
  }
}

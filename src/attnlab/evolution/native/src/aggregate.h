// Aggregation, with maps that are in memory or are made where they are used.
#pragma once
#include "spanned.h"
#include "stored.h"

// y[c, i] = sum_k a[k, i] x[c, i + k]
template <class S, class T, class Maps>
static void aggregate(const Problem& p, int64_t channels, const Maps& given, const S* x,
                      int64_t x_batch, S* y) {
  const RowBlocks blocks(p.stride_h, p.dilation_h);
  const int64_t row_bytes = channels * (p.width + 16) * p.stride_h * int64_t(sizeof(T));
  const int64_t rows_each = rows_per_task(p, p.out_height, row_bytes);
  const int64_t tasks_each = ceil_div(p.out_height, rows_each);
  const int64_t image = p.out_plane, taps = p.kernel_h + blocks.step * (ROWS - 1);
  // Maps of one channel are read once: straight from where they are. Others are packed first.
  const bool direct = Maps::stored && p.out_width >= LANES<T> && channels < 4;
#pragma omp parallel num_threads(p.threads)
  {
    Planes<T> planes(p, std::min(p.height, input_rows(p, 0, rows_each).end + p.pad_h + p.stride_h));
    const int64_t strip_size = taps * p.kernel_w * ROWS * LANES<T>;
    Buffer<T> scratch(channels * planes.plane, true), packed(strip_size * TILE_STRIPS);
    const auto& maps = given.for_thread();
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
      S* out = y + (b * p.groups + g) * channels * image;
      const int run_count = planes.runs(runs.data(), p, direct ? image : ROWS * LANES<T>);
      for_row_blocks(blocks, begin, end, [&](int64_t h, int64_t in_block) {
        const int64_t row_step = blocks.apart * p.out_width;
        const int64_t w_row_tap = p.kernel_w * (direct ? image : ROWS * LANES<T>);
        const int64_t w_row = direct ? row_step - blocks.step * w_row_tap : LANES<T>;
        const T* w = packed.get();
        if constexpr (Maps::stored)
          if (direct) w = maps.group(p, b, g) + h * p.out_width;
        const int count = row_taps(rows.data(), p, blocks, h, in_block, scratch.get(), planes, w,
                                   w_row_tap, [](int64_t, int64_t, int64_t) {});
        for_tiles<T>(p.out_width, [&](const Strip* strips, int strip_count) {
          if (!direct)
            maps.pack(Packed<T>{packed.get(), w_row_tap, strip_size, strips, strip_count}, p, blocks, b,
                      g, h, in_block, rows.data(), count);
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
template <class S, class T>
static void av(const Problem& p, int64_t channels, const S* maps, int64_t maps_batch, const S* x,
               int64_t x_batch, S* y) {
  aggregate<S, T>(p, channels, StoredMaps<S, T>{maps, maps_batch}, x, x_batch, y);
}
template <class S, class T>
static void spanned_av(const Problem& p, int64_t channels, int64_t depth, const T* weight,
                       const T* bias, const S* features, int64_t features_batch, const S* x,
                       int64_t x_batch, S* y) {
  const SpannedMaps<S, T> maps{weight, bias, depth, features, features_batch};
  aggregate<S, T>(p, channels, maps, x, x_batch, y);
}

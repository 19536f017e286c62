// Products of every pixel with its neighbours: the maps' gradient, and attention's scores.
#pragma once
#include "tiles.h"

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

// The adjoint in gather form: every input pixel collects from the output pixels that read it, so no
// two threads write to one place. The rows of maps it needs lie in a ring of rows with zero margins;
// margins of both operands are zero, so a non-finite weight does not leak into its neighbours.
#pragma once
#include "spanned.h"
#include "stored.h"

// Columns j = stride * J + phase are reached by every (stride / gcd)-th tap.
static inline Run adjoint_run(const Problem& p, int64_t phase, int64_t margin, int64_t pitch) {
  const int64_t apart = p.stride_w / std::gcd(p.stride_w, p.dilation_w);
  int64_t tap = 0;
  while (tap < p.kernel_w && (phase + p.pad_w - p.dilation_w * tap) % p.stride_w != 0) tap++;
  if (tap == p.kernel_w) return {0, 0, 0, 0, 0};
  const int64_t at = margin + (phase + p.pad_w - p.dilation_w * tap) / p.stride_w;
  const int64_t step = -p.dilation_w * apart / p.stride_w;
  return {at, step, tap * pitch + at, apart * pitch + step, (p.kernel_w - tap + apart - 1) / apart};
}

// gx rows j, j + d, ... of all channels, from the ring and the rows `y` (channel planes `plane`
// apart, row i at (i - y_first) * pitch).
template <class S, class T>
static inline void adjoint_rows(const Problem& p, const Margins<T>& margins, const Ring<T>& ring,
                                const T* y, int64_t y_first, int64_t plane, int64_t channels,
                                int64_t j, int64_t in_block, RowTap<T>* rows, S* gx) {
  const Span readers = readers_of(p, j, j + p.dilation_h * (in_block - 1));
  int count = 0;
  for (int64_t i = readers.begin; i < readers.end; i++) {
    const int64_t distance = j + p.pad_h - p.stride_h * i;
    if (distance % p.dilation_h != 0) continue;
    const int64_t tap = distance / p.dilation_h;  // of row 0 of the block; row r has tap + r
    const int64_t first = std::max<int64_t>(0, -tap), last = std::min(in_block, p.kernel_h - tap);
    if (first < last)
      rows[count++] = {y + (i - y_first) * margins.pitch,
                       ring.row(i) + tap * p.kernel_w * margins.pitch, first, last};
  }
  for (int64_t phase = 0; phase < p.stride_w; phase++) {
    const Run run = adjoint_run(p, phase, margins.margin, margins.pitch);
    for_strips<T>(ceil_div(p.width - phase, p.stride_w), [&](Strip strip) {
      accumulate_all<T>(
          rows, count, &run, 1, strip.begin, strip.begin, plane, p.kernel_w * margins.pitch, channels,
          [&](int64_t r, int64_t c, Vector<T> value) {
            if (r >= in_block) return;
            S* to = gx + c * p.plane + (j + r * p.dilation_h) * p.width;
            if (p.stride_w == 1) return put(p, to + strip.begin, value, strip);
            for (int64_t lane = strip.fresh; lane < strip.lanes; lane++) {
              S* at = to + (strip.begin + lane) * p.stride_w + phase;
              narrow(at, p.accumulate ? widen(*at) + value[lane] : value[lane]);
            }
          });
    });
  }
}

// gx[c, j] = sum_k a[k, j - k] y[c, j - k]
template <class S, class T, class Maps>
static void adjoint(const Problem& p, int64_t channels, const Maps& given, const S* y,
                    int64_t y_batch, S* gx) {
  const Margins<T> margins(p);
  const int64_t row_bytes = channels * margins.pitch * int64_t(sizeof(T)) / p.stride_h;
  const int64_t block = p.dilation_h * ROWS;
  const int64_t rows_each = round_up(rows_per_task(p, p.height, row_bytes), block);
  const int64_t tasks_each = ceil_div(p.height, rows_each);
  const int64_t image = p.out_plane;
#pragma omp parallel num_threads(p.threads)
  {
    const int64_t most_rows =
        std::min(p.out_height, (rows_each + p.dilation_h * p.kernel_h) / p.stride_h + 2);
    const int64_t plane = (round_up(most_rows * margins.pitch, 16) / 16 | 1) * 16;
    Buffer<T> planes(channels * plane, true);
    Ring<T> ring(p, margins, 1);
    const auto& maps = given.for_thread();
    std::vector<RowTap<T>> rows(ring.capacity + p.kernel_h + ROWS);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p.batch * p.groups * tasks_each; task++) {
      const int64_t begin = task % tasks_each * rows_each;
      const int64_t end = std::min(p.height, begin + rows_each);
      const int64_t b = task / tasks_each / p.groups, g = task / tasks_each % p.groups;
      const S* from = y + b * y_batch + g * channels * image;
      S* out = gx + (b * p.groups + g) * channels * p.plane;
      const Span span = readers_of(p, begin, end - 1);
      for (int64_t c = 0; c < channels; c++)
        for (int64_t i = span.begin; i < span.end; i++)
          copy_row(planes.get() + c * plane + (i - span.begin) * margins.pitch + margins.margin,
                   from + c * image + i * p.out_width, p.out_width, T(1));
      int64_t filled = span.begin;
      for (int64_t base = begin; base < end; base += block) {
        const int64_t needed = readers_of(p, base, std::min(end, base + block) - 1).end;
        while (filled < needed) {
          const int64_t count = std::min<int64_t>(ROWS, needed - filled);
          maps.fill(ring, margins, p, b, g, filled, count);
          filled += count;
        }
        for (int64_t j = base; j < std::min(base + p.dilation_h, end); j++)
          adjoint_rows(p, margins, ring, planes.get(), span.begin, plane, channels, j,
                       std::min<int64_t>(ROWS, ceil_div(end - j, p.dilation_h)), rows.data(), out);
      }
    }
  }
}
template <class S, class T>
static void sc(const Problem& p, int64_t channels, const S* maps, int64_t maps_batch, const S* y,
               int64_t y_batch, S* gx) {
  adjoint<S, T>(p, channels, StoredMaps<S, T>{maps, maps_batch}, y, y_batch, gx);
}
template <class S, class T>
static void spanned_sc(const Problem& p, int64_t channels, int64_t depth, const T* weight,
                       const T* bias, const S* features, int64_t features_batch, const S* y,
                       int64_t y_batch, S* gx) {
  const SpannedMaps<S, T> maps{weight, bias, depth, features, features_batch};
  adjoint<S, T>(p, channels, maps, y, y_batch, gx);
}

// Local attention without maps in memory: scores, softmax and values of a few rows at a time. The
// backward pass computes the scores again from the saved maximum and normaliser of each softmax.
#pragma once
#include "adjoint.h"

// Mirrors attnlab.evolution.native.abi.Attention. Heads are Problem::groups. Position terms may be
// null: bias (heads, taps), row (heads, row_depth, kernel_h), column (heads, depth - row_depth,
// kernel_w). A sequence is an image of one row whose row_depth is 0.
struct Attention {
  int64_t depth, value_depth, row_depth;
  double scale;
  int64_t mask;  // leave pixels outside the image out of the softmax, instead of scoring them zero
  const void *bias, *row, *column;
};

// Far below any score, and finite: a row of nothing but these still has a softmax.
constexpr double OUTSIDE = -1e30;

// The scores of one strip of a row block, as vectors [row tap][column tap][row of the block].
template <class S, class T>
struct Scorer {
  static constexpr int L = LANES<T>;
  const Problem& p;
  const Attention& at;
  RowBlocks blocks;
  int64_t row_tap, row_depth, column_depth;
  const T *bias, *row, *column;  // of this head
  Buffer<T> queries, scores, row_terms, column_terms, column_mask;
  std::vector<RowTap<T>> rows;
  std::vector<Run> runs;
  int count = 0, run_count = 0;

  Scorer(const Problem& p, const Attention& at)
      : p(p),
        at(at),
        blocks(p.stride_h, p.dilation_h),
        row_tap(p.kernel_w * ROWS * L),
        row_depth(at.row_depth),
        column_depth(at.depth - at.row_depth),
        queries(at.depth * ROWS * L, true),
        scores((p.kernel_h + blocks.step * (ROWS - 1)) * row_tap, true),
        row_terms(p.kernel_h * ROWS * L, true),
        column_terms(p.kernel_w * ROWS * L, true),
        column_mask(p.kernel_w * L),
        rows(p.kernel_h + blocks.step * (ROWS - 1)),
        runs(p.kernel_w) {}

  void head(int64_t h) {
    bias = at.bias ? static_cast<const T*>(at.bias) + h * p.taps() : nullptr;
    row = at.row ? static_cast<const T*>(at.row) + h * row_depth * p.kernel_h : nullptr;
    column = at.column ? static_cast<const T*>(at.column) + h * column_depth * p.kernel_w : nullptr;
  }
  // The vector of tap (u, v) for row r of the block.
  int64_t tap(int64_t u, int64_t v, int64_t r) const {
    return (u + r * blocks.step) * row_tap + (v * ROWS + r) * L;
  }
  // The vectors of `channels` planes at this strip, for all rows of the block.
  static void pack(T* to, const S* from, int64_t channels, int64_t image, int64_t row_step,
                   int64_t in_block, Strip strip, T scale) {
    for (int64_t c = 0; c < channels; c++)
      for (int64_t r = 0; r < in_block; r++)
        store(to + (c * ROWS + r) * L,
              load_first(from + c * image + r * row_step + strip.begin, strip.lanes, T()) * scale);
  }
  bool mask_columns(Strip strip) {
    bool any = false;
    for (int64_t v = 0; v < p.kernel_w; v++)
      for (int64_t lane = 0; lane < L; lane++) {
        const int64_t at = (strip.begin + lane) * p.stride_w + v * p.dilation_w - p.pad_w;
        const bool outside = at < 0 || at >= p.width;
        column_mask.get()[v * L + lane] = outside ? T(OUTSIDE) : T(0);
        any |= outside;
      }
    return any;
  }
  void position_terms(int64_t in_block) {
    for (int64_t r = 0; r < in_block; r++) {
      for (int64_t u = 0; u < p.kernel_h; u++) {
        Vector<T> sum{};
        for (int64_t d = 0; d < row_depth; d++)
          sum += load(queries.get() + (d * ROWS + r) * L) * row[d * p.kernel_h + u];
        store(row_terms.get() + (u * ROWS + r) * L, sum);
      }
      for (int64_t v = 0; v < p.kernel_w; v++) {
        Vector<T> sum{};
        for (int64_t d = 0; d < column_depth; d++)
          sum +=
              load(queries.get() + ((row_depth + d) * ROWS + r) * L) * column[d * p.kernel_w + v];
        store(column_terms.get() + (v * ROWS + r) * L, sum);
      }
    }
  }
  void compute(const S* q, const T* keys, const Planes<T>& planes, int64_t h, int64_t in_block,
               Strip strip) {
    const T missing = at.mask ? T(OUTSIDE) : T(0);
    run_count = planes.runs(runs.data(), p, ROWS * L);
    count = row_taps(rows.data(), p, blocks, h, in_block, keys, planes, scores.get(), row_tap,
                     [&](int64_t rr, int64_t first, int64_t last) {
                       for (int64_t v = 0; v < p.kernel_w; v++)
                         for (int64_t r = first; r < last; r++)
                           store(scores.get() + rr * row_tap + (v * ROWS + r) * L, splat(missing));
                     });
    pack(queries.get(), q + h * p.out_width, at.depth, p.out_plane, blocks.apart * p.out_width,
         in_block, strip, T(at.scale));
    products<T, ROWS>(rows.data(), count, runs.data(), run_count, strip.begin, 0, queries.get(),
                      at.depth, planes.plane, L);
    const bool edge = at.mask && mask_columns(strip);
    if (column) position_terms(in_block);
    if (!edge && !column && !bias) return;
    for (int64_t r = 0; r < in_block; r++)
      for (int64_t u = 0; u < p.kernel_h; u++)
        for (int64_t v = 0; v < p.kernel_w; v++) {
          T* to = scores.get() + tap(u, v, r);
          Vector<T> score = load(to);
          if (bias) score += bias[u * p.kernel_w + v];
          if (column)
            score += load(row_terms.get() + (u * ROWS + r) * L) +
                     load(column_terms.get() + (v * ROWS + r) * L);
          if (edge) score += load(column_mask.get() + v * L);
          store(to, score);
        }
  }
  // f(vector) for every tap of row r, in place.
  template <class F>
  void each(T* buffer, int64_t r, F f) const {
    for (int64_t u = 0; u < p.kernel_h; u++)
      for (int64_t v = 0; v < p.kernel_w; v++) f(buffer + tap(u, v, r));
  }
};

// stats (batch, heads, 2, H_out, W_out): the maximum of each softmax and one over its sum.
template <class S, class T>
static void attention(const Problem& p, const Attention& at, const S* q, int64_t q_batch, const S* k,
                      int64_t k_batch, const S* v, int64_t v_batch, S* out, T* stats) {
  const int64_t row_bytes =
      (at.depth + at.value_depth) * (p.width + 16) * p.stride_h * int64_t(sizeof(T));
  const int64_t rows_each = rows_per_task(p, p.out_height, row_bytes);
  const int64_t tasks_each = ceil_div(p.out_height, rows_each);
  const int64_t image = p.out_plane;
#pragma omp parallel num_threads(p.threads)
  {
    Planes<T> planes(p, std::min(p.height, input_rows(p, 0, rows_each).end + p.pad_h + p.stride_h));
    Buffer<T> keys(at.depth * planes.plane, true), values(at.value_depth * planes.plane, true);
    Scorer<S, T> scorer(p, at);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p.batch * p.groups * tasks_each; task++) {
      const int64_t begin = task % tasks_each * rows_each;
      const int64_t end = std::min(p.out_height, begin + rows_each);
      const int64_t b = task / tasks_each / p.groups, head = task / tasks_each % p.groups;
      const Span span = input_rows(p, begin, end);
      planes.fill(keys.get(), k + b * k_batch + head * at.depth * p.plane, at.depth, p, span.begin,
                  span.end);
      planes.fill(values.get(), v + b * v_batch + head * at.value_depth * p.plane, at.value_depth,
                  p, span.begin, span.end);
      scorer.head(head);
      const S* query = q + b * q_batch + head * at.depth * image;
      S* to = out + (b * p.groups + head) * at.value_depth * image;
      T* saved = stats + (b * p.groups + head) * 2 * image;
      for_row_blocks(scorer.blocks, begin, end, [&](int64_t h, int64_t in_block) {
        const int64_t row_step = scorer.blocks.apart * p.out_width;
        for_strips<T>(p.out_width, [&](Strip strip) {
          scorer.compute(query, keys.get(), planes, h, in_block, strip);
          Vector<T> inverse[ROWS];
          for (int64_t r = 0; r < in_block; r++) {
            Vector<T> most = splat(T(OUTSIDE)), sum{};
            scorer.each(scorer.scores.get(), r, [&](T* s) { most = larger(most, load(s)); });
            scorer.each(scorer.scores.get(), r, [&](T* s) {
              const Vector<T> e = exponential(load(s) - most);
              sum += e;
              store(s, e);
            });
            inverse[r] = T(1) / sum;
            T* row = saved + h * p.out_width + r * row_step + strip.begin;
            store_first(row, most, strip.lanes, T());
            store_first(row + image, inverse[r], strip.lanes, T());
          }
          for (int i = 0; i < scorer.count; i++)
            scorer.rows[i].x += values.get() - keys.get();
          accumulate_all<T>(scorer.rows.data(), scorer.count, scorer.runs.data(), scorer.run_count,
                            strip.begin, 0, planes.plane, LANES<T>, at.value_depth,
                            [&](int64_t r, int64_t c, Vector<T> value) {
                              if (r < in_block)
                                store_first(to + c * image + h * p.out_width + r * row_step +
                                                strip.begin,
                                            value * inverse[r], strip.lanes, T());
                            });
        });
      });
    }
  }
}

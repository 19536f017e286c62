// Gradients of local attention. Query by query: probabilities, their gradients, and the gradient of
// the query; both go to rings of rows, from which keys and values collect theirs.
#pragma once
#include "attention.h"

// Gradients of the position terms, one per image and head so that the sum does not depend on the
// number of threads; null where the term is.
template <class T>
struct PositionGradients {
  T *bias, *row, *column;
};

template <class S, class T>
struct QueryPass {
  static constexpr int L = LANES<T>;
  const Problem& p;
  const Attention& at;
  Scorer<S, T> scorer;
  Buffer<T> grads, queries_out, by_row, by_column, bias_sum, row_sum, column_sum;

  QueryPass(const Problem& p, const Attention& at)
      : p(p),
        at(at),
        scorer(p, at),
        grads((p.kernel_h + scorer.blocks.step * (ROWS - 1)) * scorer.row_tap, true),
        queries_out(at.value_depth * ROWS * L, true),
        by_row(p.kernel_h * ROWS * L),
        by_column(p.kernel_w * ROWS * L),
        bias_sum(at.bias ? p.taps() * L : 0),
        row_sum(scorer.row_depth * p.kernel_h * L),
        column_sum(scorer.column_depth * p.kernel_w * L) {}

  void start(int64_t head) {
    scorer.head(head);
    if (at.bias) memset(bias_sum.get(), 0, sizeof(T) * p.taps() * L);
    if (at.column) {
      memset(row_sum.get(), 0, sizeof(T) * scorer.row_depth * p.kernel_h * L);
      memset(column_sum.get(), 0, sizeof(T) * scorer.column_depth * p.kernel_w * L);
    }
  }
  // Probabilities into scorer.scores and gradients of the scores into grads.
  void softmax_gradients(const S* grad, const T* keys, const T* values, const Planes<T>& planes,
                         const T* saved, int64_t h, int64_t in_block, Strip strip) {
    const int64_t row_step = scorer.blocks.apart * p.out_width;
    Mask<T> inside;
    for (int lane = 0; lane < L; lane++) inside[lane] = lane < strip.lanes ? -1 : 0;
    for (int64_t r = 0; r < in_block; r++) {
      const T* row = saved + h * p.out_width + r * row_step + strip.begin;
      const Vector<T> most = load_first(row, strip.lanes, T());
      const Vector<T> inverse = load_first(row + p.out_plane, strip.lanes, T());
      scorer.each(scorer.scores.get(), r, [&](T* s) {
        const Vector<T> probability = exponential(load(s) - most) * inverse;
        store(s, inside ? probability : Vector<T>{});
      });
    }
    Scorer<S, T>::pack(queries_out.get(), grad + h * p.out_width, at.value_depth, p.out_plane,
                       row_step, in_block, strip, T(1));
    std::vector<RowTap<T>>& rows = scorer.rows;
    scorer.count = row_taps(rows.data(), p, scorer.blocks, h, in_block, values, planes, grads.get(),
                            scorer.row_tap, [&](int64_t rr, int64_t first, int64_t last) {
                              for (int64_t v = 0; v < p.kernel_w; v++)
                                for (int64_t r = first; r < last; r++)
                                  store(grads.get() + rr * scorer.row_tap + (v * ROWS + r) * L,
                                        Vector<T>{});
                            });
    products<T, ROWS>(rows.data(), scorer.count, scorer.runs.data(), scorer.run_count, strip.begin,
                      0, queries_out.get(), at.value_depth, planes.plane, L);
    const int64_t to_probability = scorer.scores.get() - grads.get();
    for (int64_t r = 0; r < in_block; r++) {
      Vector<T> mean{};
      scorer.each(grads.get(), r, [&](T* g) { mean += load(g + to_probability) * load(g); });
      scorer.each(grads.get(), r,
                  [&](T* g) { store(g, load(g + to_probability) * (load(g) - mean)); });
    }
    for (int i = 0; i < scorer.count; i++) rows[i].x += keys - values;
  }
  // Gradients of the scores summed along the columns and along the rows of the window, and the sums
  // over pixels that the position terms collect. Lanes that an earlier strip had do not count there.
  void position_gradients(int64_t in_block, Strip strip) {
    Mask<T> fresh;
    for (int lane = 0; lane < L; lane++) fresh[lane] = lane >= strip.fresh ? -1 : 0;
    memset(by_row.get(), 0, sizeof(T) * p.kernel_h * ROWS * L);
    memset(by_column.get(), 0, sizeof(T) * p.kernel_w * ROWS * L);
    for (int64_t r = 0; r < in_block; r++) {
      for (int64_t u = 0; u < p.kernel_h; u++)
        for (int64_t v = 0; v < p.kernel_w; v++) {
          const Vector<T> g = load(grads.get() + scorer.tap(u, v, r));
          if (at.bias) add(bias_sum.get() + (u * p.kernel_w + v) * L, fresh ? g : Vector<T>{});
          add(by_row.get() + (u * ROWS + r) * L, g);
          add(by_column.get() + (v * ROWS + r) * L, g);
        }
      if (!at.column) continue;
      // Channels of the query, times a sum of gradients along the other axis of the window.
      auto collect = [&](T* to, const T* sums, int64_t first, int64_t depth, int64_t taps) {
        for (int64_t d = 0; d < depth; d++) {
          const Vector<T> any = load(scorer.queries.get() + ((first + d) * ROWS + r) * L);
          const Vector<T> query = fresh ? any : Vector<T>{};
          for (int64_t k = 0; k < taps; k++)
            add(to + (d * taps + k) * L, query * load(sums + (k * ROWS + r) * L));
        }
      };
      collect(row_sum.get(), by_row.get(), 0, scorer.row_depth, p.kernel_h);
      collect(column_sum.get(), by_column.get(), scorer.row_depth, scorer.column_depth, p.kernel_w);
    }
  }
  static void add(T* to, Vector<T> value) { store(to, load(to) + value); }

  // What the relative embeddings add to the gradient of query channel c, row r of the block.
  Vector<T> through_positions(int64_t c, int64_t r) const {
    Vector<T> sum{};
    if (c < scorer.row_depth)
      for (int64_t u = 0; u < p.kernel_h; u++)
        sum += load(by_row.get() + (u * ROWS + r) * L) * scorer.row[c * p.kernel_h + u];
    else
      for (int64_t v = 0; v < p.kernel_w; v++)
        sum += load(by_column.get() + (v * ROWS + r) * L) *
               scorer.column[(c - scorer.row_depth) * p.kernel_w + v];
    return sum;
  }
  void finish(const PositionGradients<T>& to, int64_t task) const {
    auto reduce = [&](T* out, const T* sums, int64_t count) {
      for (int64_t i = 0; i < count; i++) out[task * count + i] = sum_lanes<T>(load(sums + i * L));
    };
    if (at.bias) reduce(to.bias, bias_sum.get(), p.taps());
    if (at.row) reduce(to.row, row_sum.get(), scorer.row_depth * p.kernel_h);
    if (at.column) reduce(to.column, column_sum.get(), scorer.column_depth * p.kernel_w);
  }
};

template <class S, class T>
static void attention_backward(const Problem& p, const Attention& at, const S* q, int64_t q_batch,
                               const S* k, int64_t k_batch, const S* v, int64_t v_batch,
                               const T* stats, const S* grad, int64_t grad_batch, S* gq,
                               int64_t gq_batch, S* gk, int64_t gk_batch, S* gv, int64_t gv_batch,
                               PositionGradients<T> positions) {
  const Margins<T> margins(p);
  const int64_t image = p.out_plane;
#pragma omp parallel num_threads(p.threads)
  {
    Planes<T> planes(p, p.height);
    Buffer<T> keys(at.depth * planes.plane, true), values(at.value_depth * planes.plane, true);
    const int64_t plane = (round_up(p.out_height * margins.pitch, 16) / 16 | 1) * 16;
    Buffer<T> queries(at.depth * plane, true), grads(at.value_depth * plane, true);
    QueryPass<S, T> pass(p, at);
    const RowBlocks blocks = pass.scorer.blocks;
    const int64_t group = blocks.apart * ROWS, row_step = blocks.apart * p.out_width;
    Ring<T> probability_ring(p, margins, group), score_ring(p, margins, group);
    std::vector<RowTap<T>> rows(probability_ring.capacity + p.kernel_h + ROWS);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p.batch * p.groups; task++) {
      const int64_t b = task / p.groups, head = task % p.groups;
      const int64_t key_at = head * at.depth, value_at = head * at.value_depth;
      const S* query = q + b * q_batch + key_at * image;
      const S* incoming = grad + b * grad_batch + value_at * image;
      const T* saved = stats + task * 2 * image;
      S* query_grad = gq + b * gq_batch + key_at * image;
      planes.fill(keys.get(), k + b * k_batch + key_at * p.plane, at.depth, p, 0, p.height);
      planes.fill(values.get(), v + b * v_batch + value_at * p.plane, at.value_depth, p, 0,
                  p.height);
      auto spread = [&](T* to, const S* from, int64_t channels, T scale) {
        for (int64_t c = 0; c < channels; c++)
          for (int64_t i = 0; i < p.out_height; i++)
            copy_row(to + c * plane + i * margins.pitch + margins.margin,
                     from + c * image + i * p.out_width, p.out_width, scale);
      };
      spread(queries.get(), query, at.depth, T(at.scale));
      spread(grads.get(), incoming, at.value_depth, T(1));
      pass.start(head);
      auto query_rows = [&](int64_t h, int64_t in_block) {
        for_strips<T>(p.out_width, [&](Strip strip) {
          Scorer<S, T>& scorer = pass.scorer;
          scorer.compute(query, keys.get(), planes, h, in_block, strip);
          pass.softmax_gradients(incoming, keys.get(), values.get(), planes, saved, h, in_block,
                                 strip);
          if (at.bias || at.column) pass.position_gradients(in_block, strip);
          accumulate_all<T>(scorer.rows.data(), scorer.count, scorer.runs.data(), scorer.run_count,
                            strip.begin, 0, planes.plane, LANES<T>, at.depth,
                            [&](int64_t r, int64_t c, Vector<T> value) {
                              if (r >= in_block) return;
                              if (at.column) value += pass.through_positions(c, r);
                              store_first(query_grad + c * image + h * p.out_width + r * row_step +
                                              strip.begin,
                                          value * T(at.scale), strip.lanes, T());
                            });
          for (int64_t r = 0; r < in_block; r++) {
            const int64_t row = h + r * blocks.apart;
            T* probability = probability_ring.row(row) + margins.margin + strip.begin;
            T* score = score_ring.row(row) + margins.margin + strip.begin;
            for (int64_t u = 0; u < p.kernel_h; u++)
              for (int64_t w = 0; w < p.kernel_w; w++) {
                const int64_t from = scorer.tap(u, w, r);
                const int64_t to = (u * p.kernel_w + w) * margins.pitch;
                store(probability + to, load(scorer.scores.get() + from));
                store(score + to, load(pass.grads.get() + from));
              }
          }
        });
      };
      // The window is centred, so every query row is read by some key row and none is left out.
      int64_t filled = 0;
      for (int64_t base = 0; base < p.height; base += p.dilation_h * ROWS) {
        const int64_t last = std::min(p.height, base + p.dilation_h * ROWS) - 1;
        for (const int64_t needed = readers_of(p, base, last).end; filled < needed; filled += group)
          for_row_blocks(blocks, filled, std::min(p.out_height, filled + group), query_rows);
        for (int64_t j = base; j < std::min(base + p.dilation_h, p.height); j++) {
          const int64_t in_block = std::min<int64_t>(ROWS, ceil_div(p.height - j, p.dilation_h));
          adjoint_rows(p, margins, score_ring, queries.get(), 0, plane, at.depth, j, in_block,
                       rows.data(), gk + b * gk_batch + key_at * p.plane);
          adjoint_rows(p, margins, probability_ring, grads.get(), 0, plane, at.value_depth, j,
                       in_block, rows.data(), gv + b * gv_batch + value_at * p.plane);
        }
      }
      pass.finish(positions, task);
    }
  }
}

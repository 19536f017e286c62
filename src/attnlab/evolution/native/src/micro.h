// The two inner loops. Accumulators stay in registers; each shifted load serves every output row of
// the block. Block shapes are chosen for 16 vector registers, or 32 with AVX-512.
#pragma once
#include "geometry.h"

// acc[r][c] += sum over taps of w[tap][r] * x[c][tap], for `C` channels that are `plane` apart.
template <class T, int R, int C, int FIRST, int LAST>
static inline __attribute__((always_inline)) void accumulate_row(
    Vector<T> (&acc)[R][C], const T* x, const T* w, const Run& run, int64_t plane, int64_t w_row) {
  for (int64_t v = 0; v < run.count; v++, x += run.x_step, w += run.w_step) {
    Vector<T> weight[R];
#pragma GCC unroll 4
    for (int r = FIRST; r < LAST; r++) weight[r] = load(w + r * w_row);
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
      const Vector<T> value = load(x + c * plane);
#pragma GCC unroll 4
      for (int r = FIRST; r < LAST; r++) acc[r][c] += weight[r] * value;
    }
  }
}
template <class T, int R, int C>
static inline __attribute__((always_inline)) void accumulate(
    Vector<T> (&acc)[R][C], const RowTap<T>* rows, int row_count, const Run* runs, int run_count,
    int64_t x_shift, int64_t w_shift, int64_t plane, int64_t w_row) {
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) acc[r][c] = Vector<T>{};
  for (int i = 0; i < row_count; i++)
    for (int j = 0; j < run_count; j++) {
      const RowTap<T>& row = rows[i];
      const T* x = row.x + runs[j].x + x_shift;
      const T* w = row.w + runs[j].w + w_shift;
      if (R == 1 || (row.first == 0 && row.last == R))
        accumulate_row<T, R, C, 0, R>(acc, x, w, runs[j], plane, w_row);
      else if (row.first == 0)
        accumulate_row<T, R, C, 0, 1>(acc, x, w, runs[j], plane, w_row);
      else
        accumulate_row<T, R, C, R - 1, R>(acc, x, w, runs[j], plane, w_row);
    }
}

// to[tap][r] = sum over channels of q[c][r] * x[c][tap], for `N` neighbouring column taps.
template <class T, int R, int N, int FIRST, int LAST>
static inline __attribute__((always_inline)) void products_of(
    const T* x, int64_t x_step, const T* q, int64_t channels, int64_t plane, T* to, int64_t to_step,
    int64_t to_row) {
  Vector<T> acc[R][N];
#pragma GCC unroll 4
  for (int r = FIRST; r < LAST; r++)
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) acc[r][n] = Vector<T>{};
  for (int64_t c = 0; c < channels; c++, x += plane, q += R * LANES<T>) {
    Vector<T> query[R];
#pragma GCC unroll 4
    for (int r = FIRST; r < LAST; r++) query[r] = load(q + r * LANES<T>);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const Vector<T> value = load(x + n * x_step);
#pragma GCC unroll 4
      for (int r = FIRST; r < LAST; r++) acc[r][n] += query[r] * value;
    }
  }
#pragma GCC unroll 4
  for (int r = FIRST; r < LAST; r++)
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) store(to + n * to_step + r * to_row, acc[r][n]);
}
template <class T, int R, int FIRST, int LAST>
static inline void products_run(const T* x, const Run& run, const T* q, int64_t channels,
                                int64_t plane, T* to, int64_t to_row) {
  int64_t v = 0;
  while (v < run.count) {
    const int64_t left = run.count - v;
    const T* from = x + v * run.x_step;
    T* out = to + v * run.w_step;
    if (left >= 4 && left != 5) {
      products_of<T, R, 4, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row);
      v += 4;
    } else if (left >= 3) {
      products_of<T, R, 3, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row);
      v += 3;
    } else if (left == 2) {
      products_of<T, R, 2, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row);
      v += 2;
    } else {
      products_of<T, R, 1, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row);
      v += 1;
    }
  }
}
// RowTap::w is where the products of that row go.
template <class T, int R>
static inline void products(const RowTap<T>* rows, int row_count, const Run* runs, int run_count,
                            int64_t x_shift, int64_t to_shift, const T* q, int64_t channels,
                            int64_t plane, int64_t to_row) {
  for (int i = 0; i < row_count; i++)
    for (int j = 0; j < run_count; j++) {
      const RowTap<T>& row = rows[i];
      const T* x = row.x + runs[j].x + x_shift;
      T* to = const_cast<T*>(row.w) + runs[j].w + to_shift;
      if (R == 1 || (row.first == 0 && row.last == R))
        products_run<T, R, 0, R>(x, runs[j], q, channels, plane, to, to_row);
      else if (row.first == 0)
        products_run<T, R, 0, 1>(x, runs[j], q, channels, plane, to, to_row);
      else
        products_run<T, R, R - 1, R>(x, runs[j], q, channels, plane, to, to_row);
    }
}

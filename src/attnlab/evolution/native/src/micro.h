// The two inner loops. Accumulators stay in registers; each shifted load serves every output row of
// the block. Block shapes are chosen for 16 vector registers, or 32 with AVX-512.
#pragma once
#include "geometry.h"

// Keeps a loaded vector in a register: the compiler would rather repeat the load in every
// multiply-add, and loads are what limits these loops.
#if defined(__x86_64__)
#define KEEP(value) asm("" : "+v"(value))
#else
#define KEEP(value)
#endif

// Calls f<FIRST, LAST>() for the rows [first, last) of a block of R <= 3, as constants.
#define FOR_ROWS(R, first, last, CALL)            \
  do {                                            \
    if (R == 1 || (first == 0 && last == R)) {    \
      CALL(0, R);                                 \
    } else if (R == 3 && first == 0 && last == 2) { \
      CALL(0, (R < 2 ? R : 2));                   \
    } else if (R == 3 && first == 1 && last == 3) { \
      CALL((R < 2 ? 0 : 1), R);                   \
    } else if (first == 0) {                      \
      CALL(0, 1);                                 \
    } else if (R == 3 && first == 1) {            \
      CALL((R < 2 ? 0 : 1), (R < 2 ? R : 2));     \
    } else {                                      \
      CALL((R - 1), R);                           \
    }                                             \
  } while (0)

// acc[r][c] += sum over taps of w[tap][r] * x[c][tap], for `C` channels that are `plane` apart.
template <class T, int R, int C, int FIRST, int LAST>
static inline __attribute__((always_inline)) void accumulate_row(
    Vector<T> (&acc)[R][C], const T* x, const T* w, const Run& run, int64_t plane, int64_t w_row) {
  for (int64_t v = run.count; v > 0; v--, x += run.x_step, w += run.w_step) {
    Vector<T> weight[R];
#pragma GCC unroll 4
    for (int r = FIRST; r < LAST; r++) weight[r] = load(w + r * w_row);
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
      Vector<T> value = load(x + c * plane);
      KEEP(value);
#pragma GCC unroll 4
      for (int r = FIRST; r < LAST; r++) acc[r][c] += weight[r] * value;
    }
  }
}
// Rows that serve the same part of the block follow each other: a loop for each kind keeps the
// accumulators in registers.
template <class T, int R, int C>
static inline __attribute__((always_inline)) void accumulate(
    Vector<T> (&acc)[R][C], const RowTap<T>* rows, int row_count, const Run* runs, int run_count,
    int64_t x_shift, int64_t w_shift, int64_t plane, int64_t w_row) {
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) acc[r][c] = Vector<T>{};
  for (int j = 0; j < run_count; j++) {
    const Run run = runs[j];
    const RowTap<T>* row = rows;
    const RowTap<T>* end = rows + row_count;
    while (row != end) {
#define WHILE_ROWS(FIRST, LAST)                                                               \
  for (; row != end && row->first == (FIRST) && row->last == (LAST); row++)                   \
  accumulate_row<T, R, C, (FIRST), (LAST)>(acc, row->x + run.x + x_shift,                     \
                                           row->w + run.w + w_shift, run, plane, w_row)
      if constexpr (R > 1) WHILE_ROWS(0, 1);
      if constexpr (R == 3) WHILE_ROWS(0, 2);
      WHILE_ROWS(0, R);
      if constexpr (R == 3) WHILE_ROWS(1, 3);
      if constexpr (R == 3) WHILE_ROWS(1, 2);
      if constexpr (R > 1) WHILE_ROWS(R - 1, R);
#undef WHILE_ROWS
    }
  }
}

// to[tap][r] = sum over channels of q[c][r] * x[c][tap], for `N` neighbouring column taps.
template <class T, int R, int N, int FIRST, int LAST>
static inline __attribute__((always_inline)) void products_of(
    const T* x, int64_t x_step, const T* q, int64_t channels, int64_t plane, T* to, int64_t to_step,
    int64_t to_row, int64_t lanes) {
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
      Vector<T> value = load(x + n * x_step);
      KEEP(value);
#pragma GCC unroll 4
      for (int r = FIRST; r < LAST; r++) acc[r][n] += query[r] * value;
    }
  }
#pragma GCC unroll 4
  for (int r = FIRST; r < LAST; r++)
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
      store_first(to + n * to_step + r * to_row, acc[r][n], lanes, T());
}
template <class T, int R, int FIRST, int LAST>
static inline void products_run(const T* x, const Run& run, const T* q, int64_t channels,
                                int64_t plane, T* to, int64_t to_row, int64_t lanes) {
  int64_t v = 0;
  while (v < run.count) {
    const int64_t left = run.count - v;
    const T* from = x + v * run.x_step;
    T* out = to + v * run.w_step;
    if (left >= 4 && left != 5) {
      products_of<T, R, 4, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row,
                                        lanes);
      v += 4;
    } else if (left >= 3) {
      products_of<T, R, 3, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row,
                                        lanes);
      v += 3;
    } else if (left == 2) {
      products_of<T, R, 2, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row,
                                        lanes);
      v += 2;
    } else {
      products_of<T, R, 1, FIRST, LAST>(from, run.x_step, q, channels, plane, out, run.w_step, to_row,
                                        lanes);
      v += 1;
    }
  }
}
// RowTap::w is where the products of that row go; only the first `lanes` of each vector do.
template <class T, int R>
static inline void products(const RowTap<T>* rows, int row_count, const Run* runs, int run_count,
                            int64_t x_shift, int64_t to_shift, const T* q, int64_t channels,
                            int64_t plane, int64_t to_row, int64_t lanes = LANES<T>) {
  for (int i = 0; i < row_count; i++)
    for (int j = 0; j < run_count; j++) {
      const RowTap<T>& row = rows[i];
      const T* x = row.x + runs[j].x + x_shift;
      T* to = const_cast<T*>(row.w) + runs[j].w + to_shift;
#define CALL(FIRST, LAST) \
  products_run<T, R, FIRST, LAST>(x, runs[j], q, channels, plane, to, to_row, lanes)
      FOR_ROWS(R, row.first, row.last, CALL);
#undef CALL
    }
}

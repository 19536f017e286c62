// How a part of the maps lies where the inner loops read it.
#pragma once
#include "tiles.h"

// A few rows of one group's maps, as the inner loop reads them: the taps of a strip follow each
// other, each with its ROWS rows; the next strip is `strip_size` further on.
template <class T>
struct Packed {
  T* to;
  int64_t row_tap, strip_size;
  const Strip* strips;
  int strip_count;
  T* at(int64_t rr, int64_t v, int64_t r, int s) const {
    return to + s * strip_size + rr * row_tap + (v * ROWS + r) * LANES<T>;
  }
};

// Output rows that read input row j: those i with s*i = j + pad - d*kh for a tap kh.
static inline Span readers_of(const Problem& p, int64_t first_row, int64_t last_row) {
  const int64_t first = ceil_div(first_row + p.pad_h - p.dilation_h * (p.kernel_h - 1), p.stride_h);
  const int64_t last = floor_div(last_row + p.pad_h, p.stride_h);
  return {std::max<int64_t>(0, first), std::min(p.out_height, last + 1)};
}

// The rows of maps that the adjoint is at, with zero margins; row i takes the place of row
// i - capacity.
template <class T>
struct Ring {
  int64_t capacity, row_size;
  Buffer<T> data;
  Ring(const Problem& p, const Margins<T>& margins, int64_t extra_rows)
      : capacity(std::min(p.out_height + extra_rows,
                          (p.dilation_h * (p.kernel_h + ROWS - 1)) / p.stride_h + 2 + extra_rows)),
        row_size(p.taps() * margins.pitch),
        data(capacity * row_size, true) {}
  T* row(int64_t i) const { return data.get() + i % capacity * row_size; }
};

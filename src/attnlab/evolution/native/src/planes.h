// Zero-padded copies of feature planes, so that shifted vector loads need no test. The padding is
// zeroed once, with the buffer; filling touches the inside only.
#pragma once
#include "geometry.h"

template <class S, class T>
static inline void copy_row(T* to, const S* from, int64_t width, T scale) {
  for_strips<T>(width, [&](Strip strip) {
    store_first(to + strip.begin, load_first(from + strip.begin, strip.lanes, T()) * scale,
                strip.lanes, T());
  });
}

// Input planes as a strided window reads them: column q = w + pad lies in phase q % stride at q /
// stride, so that output columns j, j+1, ... are neighbours for every tap. Rows are not padded.
template <class T>
struct Planes {
  int64_t first_row = 0, pitch, phase, plane;
  int64_t stride, pad;
  Planes(const Problem& p, int64_t rows) : stride(p.stride_w), pad(p.pad_w) {
    const int64_t reach = std::max<int64_t>(p.out_width, LANES<T>) +
                          p.dilation_w * (p.kernel_w - 1) / stride;
    phase = round_up(std::max(reach, (p.width - 1 + pad) / stride) + 1, 8);
    pitch = phase * stride;
    // An odd number of cache lines: planes a power of two apart would share cache sets.
    plane = round_up(rows * pitch * int64_t(sizeof(T)), 64) / 64 | 1;
    plane = plane * 64 / int64_t(sizeof(T));
  }
  template <class S>
  void fill(T* to, const S* from, int64_t channels, const Problem& p, int64_t begin, int64_t end) {
    first_row = begin;
    for (int64_t c = 0; c < channels; c++)
      for (int64_t h = begin; h < end; h++) {
        T* row = to + c * plane + (h - begin) * pitch;
        const S* source = from + c * p.plane + h * p.width;
        if (stride == 1)
          copy_row(row + pad, source, p.width, T(1));
        else
          for (int64_t i = 0; i < p.width; i++)
            row[(i + pad) % stride * phase + (i + pad) / stride] = widen(source[i]);
      }
  }
  int64_t row(int64_t h) const { return (h - first_row) * pitch; }
  // Runs of column taps; weights of neighbouring taps are `w_tap` apart.
  int runs(Run* out, const Problem& p, int64_t w_tap) const {
    const int64_t apart = stride / std::gcd(stride, p.dilation_w);
    const int64_t count = std::min(apart, p.kernel_w);
    for (int64_t v = 0; v < count; v++) {
      const int64_t q = v * p.dilation_w;
      out[v] = {q % stride * phase + q / stride, apart * p.dilation_w / stride, v * w_tap,
                apart * w_tap, (p.kernel_w - v + apart - 1) / apart};
    }
    return int(count);
  }
};

// Rows at output resolution as the adjoint reads them: `margin` zeros before column 0.
template <class T>
struct Margins {
  int64_t margin, pitch, columns;
  explicit Margins(const Problem& p) {
    columns = ceil_div(p.width, p.stride_w);
    margin = std::max<int64_t>(0, ceil_div(p.dilation_w * (p.kernel_w - 1) - p.pad_w, p.stride_w));
    const int64_t most = (p.stride_w - 1 + p.pad_w) / p.stride_w + std::max<int64_t>(columns, LANES<T>);
    pitch = round_up(margin + std::max(most, p.out_width) + 1, 8);
  }
};

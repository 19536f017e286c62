// Maps that lie in memory.
#pragma once
#include "layouts.h"

template <class S, class T>
struct StoredMaps {
  const S* maps;
  int64_t batch;
  static constexpr bool stored = std::is_same<S, T>::value;
  const StoredMaps& for_thread() const { return *this; }
  const S* group(const Problem& p, int64_t b, int64_t g) const {
    return maps + b * batch + g * p.group_taps * p.out_plane;
  }
  void pack(const Packed<T>& packed, const Problem& p, const RowBlocks& blocks, int64_t b, int64_t g,
            int64_t h, int64_t, const RowTap<T>* rows, int count) const {
    const int64_t row_step = blocks.apart * p.out_width;
    for (int i = 0; i < count; i++) {
      const int64_t rr = (rows[i].w - packed.to) / packed.row_tap;
      for (int64_t v = 0; v < p.kernel_w; v++)
        for (int64_t r = rows[i].first; r < rows[i].last; r++) {
          const S* from = group(p, b, g) + h * p.out_width + r * row_step +
                          ((rr - r * blocks.step) * p.kernel_w + v) * p.out_plane;
          for (int s = 0; s < packed.strip_count; s++) {
            const Strip strip = packed.strips[s];
            store(packed.at(rr, v, r, s), load_first(from + strip.begin, strip.lanes, T()));
            __builtin_prefetch(from + ROWS * row_step + strip.begin, 0, 2);
          }
        }
    }
  }
  void fill(const Ring<T>& ring, const Margins<T>& margins, const Problem& p, int64_t b, int64_t g,
            int64_t h, int64_t rows) const {
    for (int64_t i = h; i < h + rows; i++)
      for (int64_t k = 0; k < p.taps(); k++) {
        const S* source = group(p, b, g) + k * p.out_plane + i * p.out_width;
        copy_row(ring.row(i) + k * margins.pitch + margins.margin, source, p.out_width, T(1));
        for (int64_t w = 0; w < p.out_width; w += 64 / int64_t(sizeof(S)))
          __builtin_prefetch(source + p.out_width + w);
      }
  }
};

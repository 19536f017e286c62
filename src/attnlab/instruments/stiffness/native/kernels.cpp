// The three sums of squares of a residual step in one pass over both operands. Plain C interface.
#include <cstdint>

namespace {

// Independent partial sums, so that the compiler may vectorise without reordering a single one, and
// short runs of float sums inside a double, so that a long row keeps its accuracy.
constexpr int64_t kLanes = 32;
constexpr int64_t kRun = 64 * kLanes;

template <bool kRelu>
void row_sums(const float* x, const float* f, int64_t size, double sums[3]) {
  double state = 0, update = 0, change = 0;
  int64_t start = 0;
  while (start + kLanes <= size) {
    const int64_t left = size - start;
    const int64_t stop = start + (left < kRun ? left - left % kLanes : kRun);
    float a[kLanes] = {}, b[kLanes] = {}, c[kLanes] = {};
    for (; start < stop; start += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const float u = x[start + lane], v = f[start + lane];
        a[lane] += u * u;
        b[lane] += v * v;
        if (kRelu) {
          const float w = v > -u ? v : -u;  // relu(u + v) - u
          c[lane] += w * w;
        }
      }
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      state += a[lane];
      update += b[lane];
      change += c[lane];
    }
  }
  for (; start < size; ++start) {
    const double u = x[start], v = f[start], w = v > -u ? v : -u;
    state += u * u;
    update += v * v;
    change += kRelu ? w * w : 0;
  }
  sums[0] = state;
  sums[1] = update;
  sums[2] = kRelu ? change : update;
}

}  // namespace

extern "C" void attnlab_step_sums(const float* x, int64_t x_stride, const float* f, int64_t f_stride,
                                  int64_t inputs, int64_t size, int64_t relu, int64_t threads,
                                  double* sums) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t input = 0; input < inputs; ++input) {
    const float* state = x + input * x_stride;
    const float* branch = f + input * f_stride;
    if (relu) {
      row_sums<true>(state, branch, size, sums + 3 * input);
    } else {
      row_sums<false>(state, branch, size, sums + 3 * input);
    }
  }
}

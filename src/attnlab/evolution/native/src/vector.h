// Vectors of VECTOR_BYTES bytes by compiler extension: one source for SSE, AVX2, AVX-512 and NEON.
//
// Do not build with -ffast-math: it breaks the range reduction of exp below (float32 attention is
// then wrong by tenths) and may switch the whole process to flush-to-zero.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif

struct bfloat16 {
  uint16_t bits;
};

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef float unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
  typedef int32_t mask __attribute__((vector_size(VECTOR_BYTES)));
};
template <>
struct VectorOf<double> {
  typedef double vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef double unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
  typedef int64_t mask __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::vector;
template <class T>
using Mask = typename VectorOf<T>::mask;
template <class T>
constexpr int LANES = VECTOR_BYTES / int(sizeof(T));

template <class T>
static inline Vector<T> splat(T value) {
  return value - Vector<T>{};  // which is the value, even of -0; a sum with 0 would be computed
}
template <class T>
static inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(from);
}
template <class T>
static inline void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::unaligned*>(to) = value;
}

// A full vector from storage, converted to the type T that computes.
static inline Vector<float> load_as(const float* from, float) { return load(from); }
static inline Vector<double> load_as(const double* from, double) { return load(from); }
static inline Vector<float> load_as(const bfloat16* from, float) {
  typedef uint16_t half __attribute__((vector_size(VECTOR_BYTES / 2)));
  typedef uint32_t full __attribute__((vector_size(VECTOR_BYTES)));
  half bits;
  memcpy(&bits, from, sizeof bits);
  full wide = __builtin_convertvector(bits, full) << 16;
  Vector<float> value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline float widen(float value) { return value; }
static inline double widen(double value) { return value; }
static inline float widen(bfloat16 value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
static inline void narrow(float* to, float value) { *to = value; }
static inline void narrow(double* to, double value) { *to = value; }
static inline void narrow(bfloat16* to, float value) {  // round to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  to->bits = value != value ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline void store_as(float* to, Vector<float> value) { store(to, value); }
static inline void store_as(double* to, Vector<double> value) { store(to, value); }
static inline void store_as(bfloat16* to, Vector<float> value) {
  typedef uint16_t half __attribute__((vector_size(VECTOR_BYTES / 2)));
  typedef uint32_t full __attribute__((vector_size(VECTOR_BYTES)));
  full bits;
  memcpy(&bits, &value, sizeof bits);
  full rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  rounded = (value != value) ? (full{} + 0x7fc0) : rounded;
  half out = __builtin_convertvector(rounded, half);
  memcpy(to, &out, sizeof out);
}

template <class T>
static inline T sum_lanes(Vector<T> value) {
  T sum = 0;
  for (int i = 0; i < LANES<T>; i++) sum += value[i];
  return sum;
}
template <class V>
static inline V larger(V a, V b) {
  return a > b ? a : b;
}

// exp for arguments <= 0 (scores minus their maximum). What would be a denormal is zero: denormals
// made the backward pass two to four times slower.
static inline Vector<float> exponential(Vector<float> x) {
  typedef Vector<float> V;
  typedef Mask<float> M;
  const M tiny = x < -87.0f;
  x = tiny ? splat(-87.0f) : x;
  const V shifted = x * 1.44269504088896341f + 12582912.0f;
  M exponent;
  memcpy(&exponent, &shifted, sizeof exponent);
  const V n = shifted - 12582912.0f;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  const M power = (exponent + (127 - 0x4B400000)) << 23;
  V scale;
  memcpy(&scale, &power, sizeof scale);
  return tiny ? V{} : y * scale;
}
static inline Vector<double> exponential(Vector<double> x) {
  typedef Vector<double> V;
  typedef Mask<double> M;
  const M tiny = x < -708.0;
  x = tiny ? splat(-708.0) : x;
  const double magic = 6755399441055744.0;
  const V shifted = x * 1.44269504088896340736 + magic;
  M exponent;
  memcpy(&exponent, &shifted, sizeof exponent);
  const V n = shifted - magic;
  V r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  // Taylor to r^13: |r| <= ln(2)/2, so the rest is below 5e-18.
  V y = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  y = y * r + 1.0 / 39916800.0;
  y = y * r + 1.0 / 3628800.0;
  y = y * r + 1.0 / 362880.0;
  y = y * r + 1.0 / 40320.0;
  y = y * r + 1.0 / 5040.0;
  y = y * r + 1.0 / 720.0;
  y = y * r + 1.0 / 120.0;
  y = y * r + 1.0 / 24.0;
  y = y * r + 1.0 / 6.0;
  y = y * r + 0.5;
  y = y * (r * r) + r + 1.0;
  int64_t magic_bits;
  memcpy(&magic_bits, &magic, sizeof magic_bits);
  const M power = (exponent - magic_bits + 1023) << 52;
  V scale;
  memcpy(&scale, &power, sizeof scale);
  return tiny ? V{} : y * scale;
}

// The first lanes of a vector only: storage beyond them may belong to the next row or to nobody.
// AVX-512 has masks for this. AVX2 has one for loads; its masked store is slow on many processors.
#pragma once
#include "vector.h"

template <class S, class T>
static inline Vector<T> load_some(const S* from, int64_t count, T) {
  alignas(VECTOR_BYTES) T lanes[LANES<T>] = {};
  for (int64_t i = 0; i < count; i++) lanes[i] = widen(from[i]);
  return load(lanes);
}
template <class S, class T>
static inline void store_some(S* to, Vector<T> value, int64_t count, T) {
  alignas(VECTOR_BYTES) T lanes[LANES<T>];
  store(lanes, value);
  for (int64_t i = 0; i < count; i++) narrow(to + i, lanes[i]);
}

#if defined(__AVX512VL__) && defined(__AVX512BW__) && (VECTOR_BYTES == 32 || VECTOR_BYTES == 64)
#if VECTOR_BYTES == 64
#define OF_WIDTH(NAME) _mm512_##NAME
#define OF_HALF(NAME) _mm256_##NAME
typedef __mmask16 FloatMask;
typedef __m256i HalfBits;
#else
#define OF_WIDTH(NAME) _mm256_##NAME
#define OF_HALF(NAME) _mm_##NAME
typedef __mmask8 FloatMask;
typedef __m128i HalfBits;
#endif
static inline FloatMask first_lanes(int64_t count) { return FloatMask((1u << count) - 1); }

static inline Vector<float> load_some(const float* from, int64_t count, float) {
  return (Vector<float>)OF_WIDTH(maskz_loadu_ps)(first_lanes(count), from);
}
static inline Vector<double> load_some(const double* from, int64_t count, double) {
  return (Vector<double>)OF_WIDTH(maskz_loadu_pd)(__mmask8(first_lanes(count)), from);
}
static inline Vector<float> load_some(const bfloat16* from, int64_t count, float) {
  alignas(32) bfloat16 lanes[LANES<float>];
  const HalfBits bits = OF_HALF(maskz_loadu_epi16)(first_lanes(count), from);
  memcpy(lanes, &bits, sizeof bits);
  return load_as(lanes, 0.0f);
}
static inline void store_some(float* to, Vector<float> value, int64_t count, float) {
  OF_WIDTH(mask_storeu_ps)(to, first_lanes(count), value);
}
static inline void store_some(double* to, Vector<double> value, int64_t count, double) {
  OF_WIDTH(mask_storeu_pd)(to, __mmask8(first_lanes(count)), value);
}
static inline void store_some(bfloat16* to, Vector<float> value, int64_t count, float) {
  alignas(32) bfloat16 lanes[LANES<float>];
  store_as(lanes, value);
  HalfBits bits;
  memcpy(&bits, lanes, sizeof bits);
  OF_HALF(mask_storeu_epi16)(to, first_lanes(count), bits);
}
#undef OF_WIDTH
#undef OF_HALF
#elif defined(__AVX2__) && VECTOR_BYTES == 32
static inline Vector<float> load_some(const float* from, int64_t count, float) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return (Vector<float>)_mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), lane));
}
static inline Vector<double> load_some(const double* from, int64_t count, double) {
  const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
  return (Vector<double>)_mm256_maskload_pd(from, _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), lane));
}
static inline void store_some(float* to, Vector<float> value, int64_t count, float) {
  alignas(32) float lanes[8];
  store(lanes, value);
  int64_t i = 0;
  if (count >= 4) {
    _mm_storeu_ps(to, _mm256_castps256_ps128((__m256)value));
    i = 4;
  }
  for (; i < count; i++) to[i] = lanes[i];
}
#endif

template <class S, class T>
static inline Vector<T> load_first(const S* from, int64_t count, T zero) {
  return count >= LANES<T> ? load_as(from, zero) : load_some(from, count, zero);
}
template <class S, class T>
static inline void store_first(S* to, Vector<T> value, int64_t count, T zero) {
  if (count >= LANES<T>) return store_as(to, value);
  store_some(to, value, count, zero);
}

// The l noisy linearised steps of one round on a GPU; the formulas are those of sottovoce/oracle.py.
//
// One block serves one node and a tile of runs, one thread one run. A thread's model w and gradient g are columns of two
// (d, tile) arrays in shared memory, so no thread ever waits for another. The rows of the node are read by all threads
// of a warp at the same address, which costs one load. Non-zeros are packed as (value, column).

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T> struct Entry;
template <> struct Entry<float> { float value; int column; };
template <> struct Entry<double> { double value; long long column; };

// ---- losses: slope(z, b, theta), as in losses.py -------------------------------------------------------------------

__device__ inline float exp_(float x) { return __expf(x); }
__device__ inline double exp_(double x) { return exp(x); }
template <typename T> __device__ inline T least(T a, T b) { return a < b ? a : b; }
template <typename T> __device__ inline T most(T a, T b) { return a > b ? a : b; }

struct Logistic {
  template <typename T> __device__ static T slope(T z, T b, T) {
    T m = b * z, e = exp_(-fabs(m));
    return -b * (m < 0 ? T(1) : e) / (1 + e);
  }
};
struct Hinge {
  template <typename T> __device__ static T slope(T z, T b, T) { return b * z < 1 ? -b : T(0); }
};
struct SmoothedHinge {
  template <typename T> __device__ static T slope(T z, T b, T theta) {
    return -b * least(most(1 - b * z, T(0)), theta) / theta;
  }
};
struct Absolute {
  template <typename T> __device__ static T slope(T z, T b, T) { return T((z > b) - (z < b)); }
};
struct Huber {
  template <typename T> __device__ static T slope(T z, T b, T theta) { return least(most(z - b, -theta), theta); }
};
struct Quantile {
  template <typename T> __device__ static T slope(T z, T b, T theta) {
    return T((z > b) - (z < b) + 1) / 2 - theta;
  }
};

// ---- Philox4x32-10 and normals, as in kernels/philox.py ------------------------------------------------------------

struct Words { u32 x0, x1, x2, x3; };

__device__ inline Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

__device__ inline void sincos_(float x, float* s, float* c) { sincosf(x, s, c); }
__device__ inline void sincos_(double x, double* s, double* c) { sincos(x, s, c); }
__device__ inline float log_(float x) { return logf(x); }
__device__ inline double log_(double x) { return log(x); }
__device__ inline float log1p_(float x) { return log1pf(x); }
__device__ inline double log1p_(double x) { return log1p(x); }

template <typename T> __device__ inline void normal_pair(u32 high, u32 low, T* a, T* b) {
  bool flip = high >= 0xC0000000u;  // near u = 1 take ln(1 - v), v = 1 - u from the flipped bits
  u32 h = flip ? ~high : high, f = (flip ? ~low : low) >> 24;
  T u = T(h) * T(2.3283064365386963e-10) + (T(f) + T(0.5)) * T(9.094947017729282e-13);
  T radius = sqrt(T(-2) * (flip ? log1p_(-u) : log_(u)));
  T angle = (T(low & 0x3FFFFFu) - T(2097151.5)) * T(3.745070282923929e-07), sin, cos;
  sincos_(angle, &sin, &cos);
  if (low & 0x800000u) cos = -cos;
  bool swap = low & 0x400000u;
  *a = radius * (swap ? sin : cos);
  *b = radius * (swap ? cos : sin);
}

// ---- the recursion -------------------------------------------------------------------------------------------------

template <typename T, typename Loss, bool SHARED>
__global__ void noisy_steps(const Entry<T>* entries, const long long* starts, const long long* offsets, const T* labels,
                            const T* cap, const T* weights, const T* given, const T* eta, const T* curvature,
                            const T* std_, const T* w0, const T* pull, T* last, T* mean, T* total, T* room, int nodes,
                            int d, int runs, int l, int first_step, T theta, T l1, T l2, T radius, int mode, u32 k0,
                            u32 k1, u32 k, u32 first_node, u32 first_run) {
  extern __shared__ unsigned char shared[];
  const int i = blockIdx.x, B = blockDim.x, q = blockIdx.y * B + threadIdx.x;
  if (q >= runs) return;
  T* w = SHARED ? reinterpret_cast<T*>(shared) : room + ((size_t)blockIdx.y * nodes + i) * 2 * d * B;
  T* g = w + (size_t)d * B;
  w += threadIdx.x;
  g += threadIdx.x;
  const size_t base = (size_t)i * d * runs + q;  // this thread's column of a stack (nodes, d, runs)
  const long long first = offsets[i], end = offsets[i + 1];
  const T share = T(1) / T(end - first), s = std_[i];
  for (int c = 0; c < d; ++c) {
    w[c * B] = w0[base + (size_t)c * runs];
    total[base + (size_t)c * runs] = 0;
    mean[base + (size_t)c * runs] = 0;
  }
  for (int r = 0; r < l; ++r) {
    for (int c = 0; c < d; ++c) g[c * B] = 0;
    for (long long j = first; j < end; ++j) {
      const T weight = weights ? weights[((size_t)r * offsets[nodes] + j) * runs + q] : share;
      const int begin = (int)(starts[j] - starts[first]), stop = (int)(starts[j + 1] - starts[first]);
      const Entry<T>* row = entries + starts[first];
      T z = 0;
#pragma unroll 4
      for (int e = begin; e < stop; ++e) {
        const Entry<T> a = row[e];
        z += a.value * w[(int)a.column * B];
      }
      T slope = Loss::template slope<T>(z, labels[j], theta);
      if (cap) slope = least(most(slope, -cap[j]), cap[j]);
      slope *= weight;
#pragma unroll 4
      for (int e = begin; e < stop; ++e) {
        const Entry<T> a = row[e];
        g[(int)a.column * B] += a.value * slope;
      }
    }
    const T step = eta[(size_t)r * nodes + i], inverse = T(1) / (curvature[i] + step);
    T squares = 0;
    for (int block = 0; block < (d + 3) / 4; ++block) {
      T n[4] = {0, 0, 0, 0};
      if (mode == 1) {
        Words x = philox(((u32)(first_step + r) << 20) | block, first_node + i, k, first_run + q, k0, k1);
        normal_pair<T>(x.x0, x.x1, n, n + 1);
        normal_pair<T>(x.x2, x.x3, n + 2, n + 3);
      }
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int c = 4 * block + b;
        if (c < d) {
          const size_t at = base + (size_t)c * runs;
          const T old = w[c * B];
          const T normal = mode == 2 ? given[((size_t)r * nodes * d + (size_t)i * d + c) * runs + q] : n[b];
          const T slope = g[c * B] + l1 * T((old > 0) - (old < 0)) + l2 * old - s * normal;
          const T next = (step * old - slope + pull[at]) * inverse;
          total[at] += old;
          squares += next * next;
          w[c * B] = next;
        }
      }
    }
    const T norm = sqrt(squares), scale = norm > radius ? radius / norm : T(1);
    for (int c = 0; c < d; ++c) {
      w[c * B] *= scale;
      mean[base + (size_t)c * runs] += w[c * B];
    }
  }
  for (int c = 0; c < d; ++c) {
    const size_t at = base + (size_t)c * runs;
    last[at] = w[c * B];
    mean[at] /= T(l);
  }
}

// ---- batches, as in kernels/philox.py ------------------------------------------------------------------------------

template <typename T>
__global__ void draw_batch(T* out, const long long* offsets, int nodes, int runs, int batch, int poisson, T unit, u32 k0,
                           u32 k1, u32 k, u32 r, u32 first_node, u32 first_run) {
  const int i = blockIdx.x, q = blockIdx.y * blockDim.x + threadIdx.x;
  if (q >= runs) return;
  const long long first = offsets[i], m = offsets[i + 1] - first;
  const long long draws = poisson ? m : batch;
  for (long long block = 0; 4 * block < draws; ++block) {
    Words x = philox((r << 20) | (u32)block, first_node + i, k, first_run + q, k0, k1);
    const u32 word[4] = {x.x0, x.x1, x.x2, x.x3};
    for (int b = 0; b < 4 && 4 * block + b < draws; ++b) {
      if (poisson) {
        if ((double)word[b] * m < batch * 4294967296.0) out[(first + 4 * block + b) * runs + q] = unit;
      } else {
        out[(first + (long long)(((u64)word[b] * (u64)m) >> 32)) * runs + q] += unit;
      }
    }
  }
}

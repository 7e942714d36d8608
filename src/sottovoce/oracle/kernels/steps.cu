// The l noisy linearised steps of one round on a GPU; the formulas are those of sottovoce/oracle.py.
//
// One block serves one node and a tile of B runs, one thread one run. A thread's model w and gradient g are columns of two
// (d + 1, B) arrays in shared memory, so no thread ever waits for another. The rows of the node are read by all threads
// of a warp at the same address, which costs one load.
//
// What is scarce is not arithmetic but warps to hide latency with: shared memory holds only some 256 runs on a
// multiprocessor. So a thread works on ROWS rows at a time and on GROUP non-zeros of each, all of them in registers
// between the product and the sum. Rows are padded to whole groups, with zeros in a column of their own, and nodes to
// a whole number of ROWS. Up to DENSE columns that nearly every row has stay in registers for all rows of a node.

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T> struct Entry;
template <> struct __align__(8) Entry<float> { float value; int column; };
template <> struct __align__(16) Entry<double> { double value; long long column; };
template <typename T> struct __align__(16) Pair { Entry<T> of[2]; };  // one load of 16 bytes in single precision
template <typename T, int COUNT> struct __align__(16) Values { T of[COUNT]; };

// ---- losses: slope(z, b, theta), as in losses/scalar.py -------------------------------------------------------------------

__device__ inline float exp_(float x) { return __expf(x); }
__device__ inline double exp_(double x) { return exp(x); }
__device__ inline float over(float a, float b) { return __fdividef(a, b); }
__device__ inline double over(double a, double b) { return a / b; }
template <typename T> __device__ inline T least(T a, T b) { return a < b ? a : b; }
template <typename T> __device__ inline T most(T a, T b) { return a > b ? a : b; }

// Predictions as a slope takes them, by the rule of oracle.settled: what is no number is not above -far.
__device__ inline float far(float) { return 1.8446743e19f; }
__device__ inline double far(double) { return 1.3407807929942596e154; }
template <typename T> __device__ inline T settled(T z) { return least(most(z, -far(z)), far(z)); }

struct Logistic {
  template <typename T> __device__ static T slope(T z, T b, T) {
    T m = b * z, e = exp_(-fabs(m));
    return over(-b * (m < 0 ? T(1) : e), 1 + e);
  }
};
struct WeightedLogistic {
  template <typename T> __device__ static T slope(T z, T b, T theta) {
    return ((theta + 1) / 2 + (theta - 1) / 2 * b) * Logistic::slope(z, b, theta);
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
struct SmoothedQuantile {
  template <typename T> __device__ static T slope(T z, T b, T theta) {
    return 5 * least(most(z - b, T(-0.1)), T(0.1)) + T(0.5) - theta;
  }
};
struct Poisson {
  template <typename T> __device__ static T slope(T z, T b, T theta) {
    return least(exp_(least(z, T(30))), theta) - least(most(b, T(0)), theta);
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

// Within pi/4 of 0, where polynomials are exact to rounding (Cephes' sinf and cosf).
__device__ inline void sincos_(float x, float* s, float* c) {
  const float y = x * x;
  *s = x + x * y * (-1.6666654611e-1f + y * (8.3321608736e-3f + y * -1.9515295891e-4f));
  *c = 1 - 0.5f * y + y * y * (4.166664568298827e-2f + y * (-1.388731625493765e-3f + y * 2.443315711809948e-5f));
}
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

// ---- the tight sensitivity, as in kernels/spread.py ------------------------------------------------------------------

// How much of the plain sensitivity is needed at a model, one column of a (d, stride) array. Rows are at most `norm` long.
template <typename T>
__device__ inline double part_at(const T* w, int d, int stride, const double* parts, int knots, double norm) {
  double squares = 0;  // in double precision: in single, those of long models overflow
  for (int c = 0; c < d; ++c) squares += (double)w[(size_t)c * stride] * (double)w[(size_t)c * stride];
  const double u = 1 - 1 / (1 + norm * sqrt(squares));
  const double place = (u < 1 ? u : 1.0) * knots;  // what is no number is not below 1
  const int knot = place < knots - 1 ? (int)place : knots - 1;
  return parts[knot] + (place - knot) * (parts[knot + 1] - parts[knot]);
}

// ---- the recursion -------------------------------------------------------------------------------------------------

template <typename T> struct Rows {
  const Pair<T>* __restrict__ entries;   // (groups, GROUP / 2)
  const T* __restrict__ dense;           // (padded rows, DENSE) values in the dense columns
  const int* __restrict__ columns;       // (DENSE,) which they are
  const int* __restrict__ starts;        // (padded rows + 1,) first group of each row
  const int* __restrict__ offsets;       // (nodes + 1,) first padded row of each node
  const int* __restrict__ ids;           // (padded rows,) which row it is, -1 for padding
  const T* __restrict__ labels;          // (padded rows,)
  const T* __restrict__ cap;             // (padded rows,) largest |slope|, or null
  const T* __restrict__ share;           // (nodes,) n omega_i / m_i
};

// Add the data's part of the gradient at w to g.
template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int B, bool ONE>
__device__ inline void add_gradient(const Rows<T>& rows, const T* __restrict__ weights, int runs, int q, int i, T theta,
                                    const T* w, T* g) {
  const T share = rows.share[i];
  const int end = rows.offsets[i + 1];
  T wd[DENSE + 1], gd[DENSE + 1];  // one more, since an array of none is not allowed
#pragma unroll
  for (int c = 0; c < DENSE; ++c) {
    wd[c] = w[rows.columns[c] * B];
    gd[c] = 0;
  }
  for (int j = rows.offsets[i]; j < end; j += ROWS) {
    T value[ROWS][GROUP], z[ROWS];
    int place[ROWS][GROUP];
    Values<T, DENSE ? DENSE : 4> dense[ROWS];
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
      z[p] = 0;
      if (DENSE) dense[p] = reinterpret_cast<const Values<T, DENSE ? DENSE : 4>*>(rows.dense)[j + p];
#pragma unroll
      for (int c = 0; c < DENSE; ++c) z[p] += dense[p].of[c] * wd[c];
      const int first = ONE ? j + p : rows.starts[j + p], last = ONE ? first + 1 : rows.starts[j + p + 1];
      for (int group = first; group < last; ++group) {
        T part[2] = {0, 0};  // two sums, so that neither waits for itself
#pragma unroll
        for (int e = 0; e < GROUP; e += 2) {
          const Pair<T> a = rows.entries[(size_t)group * (GROUP / 2) + e / 2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            value[p][e + h] = a.of[h].value;
            place[p][e + h] = (int)a.of[h].column * B;
            part[h] += a.of[h].value * w[place[p][e + h]];
          }
        }
        z[p] += part[0] + part[1];
      }
    }
    T slope[ROWS];
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
      slope[p] = Loss::template slope<T>(settled(z[p]), rows.labels[j + p], theta);
      if (rows.cap) slope[p] = least(most(slope[p], -rows.cap[j + p]), rows.cap[j + p]);
      const int id = weights ? rows.ids[j + p] : 0;
      slope[p] *= weights ? (id < 0 ? T(0) : weights[(size_t)id * runs + q]) : share;
#pragma unroll
      for (int c = 0; c < DENSE; ++c) gd[c] += dense[p].of[c] * slope[p];
    }
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
      const int first = ONE ? j + p : rows.starts[j + p], last = ONE ? first + 1 : rows.starts[j + p + 1];
      for (int group = first; group < last; ++group) {
        T sum[GROUP];
#pragma unroll
        for (int e = 0; e < GROUP; ++e) {
          if (!ONE) {  // several groups: only the last one's entries are still in registers
            const Entry<T> a = rows.entries[(size_t)group * (GROUP / 2) + e / 2].of[e & 1];
            value[p][e] = a.value;
            place[p][e] = (int)a.column * B;
          }
          sum[e] = g[place[p][e]];
        }
        // The columns of a row differ, but for padding, whose sum means nothing: all loads may go before all stores.
#pragma unroll
        for (int e = 0; e < GROUP; ++e) g[place[p][e]] = sum[e] + value[p][e] * slope[p];
      }
    }
  }
#pragma unroll
  for (int c = 0; c < DENSE; ++c) g[rows.columns[c] * B] += gd[c];
}

template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int B, bool ONE, bool SHARED>
__global__ void __launch_bounds__(B) noisy_steps(
    Rows<T> rows, const T* __restrict__ weights, const T* __restrict__ given, const T* __restrict__ eta,
    const T* __restrict__ curvature, const T* __restrict__ std_, const T* __restrict__ w0, const T* __restrict__ pull,
    T* __restrict__ last, T* __restrict__ mean, T* __restrict__ total, T* __restrict__ room, int nodes, int d, int runs,
    int l, int first_step, T theta, T l1, T l2, T radius, const double* __restrict__ parts, int knots, double bound,
    int mode, u32 k0, u32 k1, u32 k, u32 first_node, u32 first_run) {
  extern __shared__ unsigned char shared[];
  const int i = blockIdx.x, q = blockIdx.y * B + threadIdx.x;
  if (q >= runs) return;
  T* w = (SHARED ? reinterpret_cast<T*>(shared) : room + ((size_t)blockIdx.y * nodes + i) * 2 * (d + 1) * B) + threadIdx.x;
  T* g = w + (size_t)(d + 1) * B;
  const size_t base = (size_t)i * d * runs + q;  // this thread's column of a stack (nodes, d, runs)
  for (int c = 0; c < d; ++c) {
    w[c * B] = w0[base + (size_t)c * runs];
    mean[base + (size_t)c * runs] = 0;
  }
  w[d * B] = 0;  // the column of the padding
  g[d * B] = 0;
  for (int r = 0; r < l; ++r) {
    for (int c = 0; c < d; ++c) g[c * B] = 0;
    add_gradient<T, Loss, GROUP, DENSE, ROWS, B, ONE>(rows, weights, runs, q, i, theta, w, g);
    // Noise for the worst model, or for the one that this step is taken at.
    const T s = parts ? T(std_[i] * part_at(w, d, B, parts, knots, bound)) : std_[i];
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
          const T old = w[c * B];
          const T normal = mode == 2 ? given[((size_t)r * nodes * d + (size_t)i * d + c) * runs + q] : n[b];
          const T slope = g[c * B] + l1 * T((old > 0) - (old < 0)) + l2 * old - s * normal;
          const T next = (step * old - slope + pull[base + (size_t)c * runs]) * inverse;
          squares += next * next;
          w[c * B] = next;
        }
      }
    }
    const T norm = sqrt(squares), scale = norm > radius ? radius / norm : T(1);
    for (int c = 0; c < d; ++c) {
      const T next = w[c * B] * scale;
      w[c * B] = next;
      mean[base + (size_t)c * runs] += next;
    }
  }
  for (int c = 0; c < d; ++c) {
    const size_t at = base + (size_t)c * runs;
    last[at] = w[c * B];
    total[at] = w0[at] + (mean[at] - w[c * B]);  // w_0 .. w_{l-1} is w_1 .. w_l, plus the first, less the last
    mean[at] /= T(l);
  }
}

// ---- batches, as in kernels/philox.py ------------------------------------------------------------------------------

__device__ inline u64 word(const Words& x, int b) { return b == 0 ? x.x0 : b == 1 ? x.x1 : b == 2 ? x.x2 : x.x3; }

template <typename T>
__global__ void draw_batch(T* out, const long long* offsets, int nodes, int runs, int batch, int poisson, T unit, u32 k0,
                           u32 k1, u32 k, u32 r, u32 first_node, u32 first_run) {
  const int i = blockIdx.x, q = blockIdx.y * blockDim.x + threadIdx.x;
  if (q >= runs) return;
  const long long first = offsets[i], m = offsets[i + 1] - first;
  const long long draws = poisson ? m : batch;
  const double limit = floor(batch * 4294967296.0 / m);
  const u64 left_over = 4294967296ull % (u64)m;
  for (long long block = 0; 4 * block < draws; ++block) {
    const u32 low = (r << 20) | ((u32)block & 0xFFFFFu), high = ((u32)(block >> 20) << 20) | (first_run + q);
    const Words x = philox(low, first_node + i, k, high, k0, k1);
    for (int b = 0; b < 4 && 4 * block + b < draws; ++b) {
      if (poisson) {
        if ((double)word(x, b) < limit) out[(first + 4 * block + b) * runs + q] = unit;
      } else {
        Words chosen = x;
        while (((word(chosen, b) * (u64)m) & 0xFFFFFFFFull) < left_over)
          chosen = philox(chosen.x0, chosen.x1, chosen.x2, chosen.x3, k0, k1);
        out[(first + (long long)((word(chosen, b) * (u64)m) >> 32)) * runs + q] += unit;
      }
    }
  }
}

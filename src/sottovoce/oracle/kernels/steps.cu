// The l noisy linearised steps of one round on a GPU; the formulas are those of sottovoce/oracle/plain.py.
//
// One block is one warp and serves one node and a tile of columns: a column is a run, or, if a loss has several outputs,
// one output of a run. A thread has V columns of the models w and of the gradients g, which lie beside each other in
// shared memory, so one load brings w of all V. The rows of the node are read by all threads at the same address.
//
// What is scarce is not arithmetic. Shared memory holds some 256 columns on a multiprocessor, so there are few warps to
// hide latency with, and every non-zero of a row goes through the one pipe to shared memory five times: itself (twice as
// wide as a number), w, g, and g again. So a thread has several columns, which share what a row costs; it works on ROWS
// rows at a time and on GROUP non-zeros of each, all of them in registers between the product and the sum; and the next
// rows are on their way while it does. Rows are padded to whole groups, with zeros in a column of their own, and nodes
// to a whole number of ROWS. Up to DENSE columns that the widest rows have stay in registers for all rows of a node.

typedef unsigned int u32;
typedef unsigned long long u64;

template <typename T> struct Entry;
template <> struct __align__(8) Entry<float> { float value; int column; };
template <> struct __align__(16) Entry<double> { double value; long long column; };
template <typename T> struct __align__(16) Pair { Entry<T> of[2]; };  // one load of 16 bytes in single precision
template <typename T, int COUNT> struct __align__(16) Values { T of[COUNT]; };
template <typename T, int V> struct __align__(V * sizeof(T)) Vector { T of[V]; };  // what a thread has of a coordinate

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
struct Softmax {};  // takes all outputs of a run together: see `slopes`
template <typename Loss> constexpr bool JOINT = false;
template <> constexpr bool JOINT<Softmax> = true;

// ---- columns: who has which ------------------------------------------------------------------------------------------

// The V columns of a thread: V runs; or V outputs of one run, which a power of two of threads share that lie side by side.
template <typename Loss, int B, int V> struct Columns {
  int outputs, sharing;   // of a run: outputs, and threads
  int place;              // of this thread among those that share a run
  int run[V], output[V];  // runs that are not there are the last one: nothing of them is written
  bool real[V];

  __device__ inline Columns(int tile, int runs, int outputs_, int sharing_)
      : outputs(JOINT<Loss> ? outputs_ : 1), sharing(JOINT<Loss> ? sharing_ : 1), place(threadIdx.x % sharing) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int q = JOINT<Loss> ? tile * (B / sharing) + threadIdx.x / sharing : (tile * V + v) * B + threadIdx.x;
      output[v] = JOINT<Loss> ? place + v * sharing : 0;
      run[v] = q < runs ? q : runs - 1;
      real[v] = q < runs && output[v] < outputs;
    }
  }

  // The sum, or the largest, of what the threads of a run have: the same bits in all of them.
  template <typename T> __device__ inline T summed(T x) const {
    for (int other = sharing / 2; other; other /= 2) x += __shfl_xor_sync(~0u, x, other);
    return x;
  }
  template <typename T> __device__ inline T largest(T x) const {
    for (int other = sharing / 2; other; other /= 2) x = most(x, __shfl_xor_sync(~0u, x, other));
    return x;
  }
  // The same of what each of a thread's columns has, where the columns are of one run.
  template <typename T> __device__ inline void summed_by_run(T* x) const {
    if constexpr (JOINT<Loss>) {
      T sum = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) sum += x[v];
      sum = summed(sum);
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = sum;
    }
  }
};

__device__ inline float vanishing(float) { return 1e-18f; }  // the squares of what is smaller are no normal numbers
__device__ inline double vanishing(double) { return 1e-140; }

// Turn a row's predictions into its slopes, no longer than the cap.
template <typename Loss, typename T, int B, int V>
__device__ inline void slopes(T* z, T b, T cap, T theta, const Columns<Loss, B, V>& mine) {
#pragma unroll
  for (int v = 0; v < V; ++v) z[v] = settled(z[v]);
  if constexpr (!JOINT<Loss>) {
#pragma unroll
    for (int v = 0; v < V; ++v) z[v] = least(most(Loss::template slope<T>(z[v], b, theta), -cap), cap);
  } else {  // p - e_b, as in kernels/softmax.py
    T top = -far(cap), total = 0, rest = 0, squares = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) top = mine.output[v] < mine.outputs ? most(top, z[v]) : top;
    top = mine.largest(top);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      z[v] = mine.output[v] < mine.outputs ? exp_(z[v] - top) : T(0);
      total += z[v];
    }
    total = mine.summed(total);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      z[v] = T(mine.output[v]) == b ? T(0) : over(z[v], total);
      rest += z[v];
      squares += z[v] * z[v];
    }
    rest = mine.summed(rest);
    squares = mine.summed(squares);
    // sqrt(2) times the sum of the others is never shorter than the slope.
    const T length = rest < vanishing(rest) ? T(1.4142136) * rest : sqrt(squares + rest * rest);
    const T scale = length > cap ? cap / length : T(1);
    // p_b - 1 is minus the sum of the others, which does not cancel.
#pragma unroll
    for (int v = 0; v < V; ++v) z[v] = (T(mine.output[v]) == b ? -rest : z[v]) * scale;
  }
}

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

// How much of the plain sensitivity is needed at a model of these squares in all. Rows are at most `norm` long.
__device__ inline double part_at(double squares, const double* parts, int knots, double norm) {
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
  const T* __restrict__ cap;             // (padded rows,) largest |slope|
  const T* __restrict__ share;           // (nodes,) n omega_i / m_i
};

// What is fetched of ROWS rows ahead of time; of rows with several groups not the entries.
template <typename T, int GROUP, int DENSE, int ROWS, bool ONE> struct __align__(16) Fetched {
  Pair<T> entries[ONE ? ROWS * GROUP / 2 : 1];
  Values<T, DENSE ? DENSE : 4> dense[ROWS];
  T labels[ROWS], cap[ROWS];
};

// Have some bytes copied to shared memory, 16 by every thread.
template <int B, int BYTES> __device__ inline void fetch(void* to, const void* from) {
  static_assert(BYTES % 16 == 0, "whole pieces");
#pragma unroll
  for (int first = 0; first < BYTES; first += 16 * B) {
    const int at = first + 16 * threadIdx.x;
    if (at < BYTES) {
#if __CUDA_ARCH__ >= 800
      const u32 there = (u32)__cvta_generic_to_shared((char*)to + at);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"((const char*)from + at) : "memory");
#else
      *(Values<float, 4>*)((char*)to + at) = *(const Values<float, 4>*)((const char*)from + at);
#endif
    }
  }
}

// Have rows j .. j + ROWS - 1 copied, if there are any.
template <typename T, int B, int GROUP, int DENSE, int ROWS, bool ONE>
__device__ inline void ask(Fetched<T, GROUP, DENSE, ROWS, ONE>& to, const Rows<T>& rows, int j, int end) {
  if (j < end) {
    if (ONE) fetch<B, sizeof(to.entries)>(to.entries, rows.entries + (size_t)j * (GROUP / 2));
    if (DENSE) fetch<B, sizeof(to.dense)>(to.dense, rows.dense + (size_t)j * DENSE);
    fetch<B, sizeof(to.labels)>(to.labels, rows.labels + j);
    fetch<B, sizeof(to.cap)>(to.cap, rows.cap + j);
  }
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

constexpr int FETCHES = 3;  // one in use, the others on their way

// Until all that was asked for is there, but for the last FETCHES - 2 times.
__device__ inline void await() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(FETCHES - 2) : "memory");
#endif
  __syncwarp();
}

// Add the data's part of the gradient at w to g. Coordinate c of w is c * 2 * B * V numbers from the first, g B * V further.
template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int B, int V, bool ONE>
__device__ inline void add_gradient(const Rows<T>& rows, Fetched<T, GROUP, DENSE, ROWS, ONE>* fetched,
                                    const T* __restrict__ weights, int runs, const Columns<Loss, B, V>& mine, int i,
                                    T theta, T* w) {
  typedef Vector<T, V> Vec;
  T* g = w + B * V;
  const T share = rows.share[i];
  const int begin = rows.offsets[i], end = rows.offsets[i + 1];
  Vec wd[DENSE + 1], gd[DENSE + 1];  // one more, since an array of none is not allowed
#pragma unroll
  for (int c = 0; c < DENSE; ++c) {
    wd[c] = *(const Vec*)(w + rows.columns[c] * (2 * B * V));
    gd[c] = Vec{};
  }
  __syncwarp();  // nobody reads the last step's rows any more
#pragma unroll
  for (int n = 0; n < FETCHES - 1; ++n) ask<T, B>(fetched[n], rows, begin + n * ROWS, end);
  int slot = 0;
  for (int j = begin; j < end; j += ROWS) {
    await();
    ask<T, B>(fetched[slot ? slot - 1 : FETCHES - 1], rows, j + (FETCHES - 1) * ROWS, end);
    const Fetched<T, GROUP, DENSE, ROWS, ONE>& here = fetched[slot];
    slot = slot == FETCHES - 1 ? 0 : slot + 1;
    T value[ROWS][GROUP], z[ROWS][V];
    int place[ROWS][GROUP];
    Values<T, DENSE ? DENSE : 4> dense[ROWS];
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
#pragma unroll
      for (int v = 0; v < V; ++v) z[p][v] = 0;
      if (DENSE) dense[p] = here.dense[p];
#pragma unroll
      for (int c = 0; c < DENSE; ++c) {
#pragma unroll
        for (int v = 0; v < V; ++v) z[p][v] += dense[p].of[c] * wd[c].of[v];
      }
      const int first = ONE ? 0 : rows.starts[j + p], last = ONE ? 1 : rows.starts[j + p + 1];
      for (int group = first; group < last; ++group) {
        Vec part[2] = {};  // two sums, so that neither waits for itself
#pragma unroll
        for (int e = 0; e < GROUP; e += 2) {
          const Pair<T> a = ONE ? here.entries[(p * GROUP + e) / 2] : rows.entries[(size_t)group * (GROUP / 2) + e / 2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            value[p][e + h] = a.of[h].value;
            place[p][e + h] = (int)a.of[h].column * (2 * B * V);
            const Vec x = *(const Vec*)(w + place[p][e + h]);
#pragma unroll
            for (int v = 0; v < V; ++v) part[h].of[v] += a.of[h].value * x.of[v];
          }
        }
#pragma unroll
        for (int v = 0; v < V; ++v) z[p][v] += part[0].of[v] + part[1].of[v];
      }
    }
#pragma unroll
    for (int p = 0; p < ROWS; ++p) slopes<Loss>(z[p], here.labels[p], here.cap[p], theta, mine);
    if (weights) {
#pragma unroll
      for (int p = 0; p < ROWS; ++p) {
        const int id = rows.ids[j + p];
#pragma unroll
        for (int v = 0; v < V; ++v) z[p][v] *= id < 0 ? T(0) : weights[(size_t)id * runs + mine.run[v]];
      }
    } else {
#pragma unroll
      for (int p = 0; p < ROWS; ++p) {
#pragma unroll
        for (int v = 0; v < V; ++v) z[p][v] *= share;
      }
    }
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
#pragma unroll
      for (int c = 0; c < DENSE; ++c) {
#pragma unroll
        for (int v = 0; v < V; ++v) gd[c].of[v] += dense[p].of[c] * z[p][v];
      }
      const int first = ONE ? 0 : rows.starts[j + p], last = ONE ? 1 : rows.starts[j + p + 1];
      for (int group = first; group < last; ++group) {
        Vec sum[GROUP];
#pragma unroll
        for (int e = 0; e < GROUP; ++e) {
          if (!ONE) {  // several groups: only the last one's entries are still in registers
            const Entry<T> a = rows.entries[(size_t)group * (GROUP / 2) + e / 2].of[e & 1];
            value[p][e] = a.value;
            place[p][e] = (int)a.column * (2 * B * V);
          }
          sum[e] = *(const Vec*)(g + place[p][e]);
        }
        // The columns of a row differ, but for padding, whose sum means nothing: all loads may go before all stores.
#pragma unroll
        for (int e = 0; e < GROUP; ++e) {
#pragma unroll
          for (int v = 0; v < V; ++v) sum[e].of[v] += value[p][e] * z[p][v];
          *(Vec*)(g + place[p][e]) = sum[e];
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < DENSE; ++c) {
    T* sum = g + rows.columns[c] * (2 * B * V);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += gd[c].of[v];
  }
}

// Take noise from the gradients: s times normals, which come four coordinates at a time. The threads of a run take turns.
template <typename T, typename Loss, int B, int V>
__device__ inline void add_noise(const Columns<Loss, B, V>& mine, const T* s, int d, u32 step, u32 node, u32 k,
                                 u32 first_run, u32 k0, u32 k1, T* w) {
  for (int block = mine.place; 4 * block < d; block += mine.sharing) {
#pragma unroll
    for (int v = 0; v < (JOINT<Loss> ? 1 : V); ++v) {
      const Words x = philox((step << 20) | block, node, k, first_run + mine.run[v], k0, k1);
      T n[4];
      normal_pair<T>(x.x0, x.x1, n, n + 1);
      normal_pair<T>(x.x2, x.x3, n + 2, n + 3);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int c = 4 * block + b;
        if (c >= d) break;
        if constexpr (!JOINT<Loss>) {
          w[(2 * c + 1) * (B * V) + v] -= s[v] * n[b];
        } else {  // to the thread that has this output
          const int output = c % mine.outputs, to = output % mine.sharing - mine.place;
          w[(2 * (c / mine.outputs) + 1) * (B * V) + to * V + output / mine.sharing] -= s[0] * n[b];
        }
      }
    }
  }
}

template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int B, int V, bool ONE, bool SHARED>
__global__ void __launch_bounds__(B, 8) noisy_steps(
    Rows<T> rows, const T* __restrict__ weights, const T* __restrict__ given, const T* __restrict__ eta,
    const T* __restrict__ curvature, const T* __restrict__ std_, const T* __restrict__ w0, const T* __restrict__ pull,
    T* __restrict__ last, T* __restrict__ mean, T* __restrict__ total, T* __restrict__ room, int nodes, int d, int outputs,
    int sharing, int runs, int l, int first_step, T theta, T l1, T l2, T radius, const double* __restrict__ parts,
    int knots, double bound, int mode, u32 k0, u32 k1, u32 k, u32 first_node, u32 first_run) {
  static_assert(B == 32, "threads of a block wait for each other as a warp does");
  typedef Vector<T, V> Vec;
  constexpr int WIDE = B * V;  // columns of a block; coordinate c of w is in row 2 c, of g in row 2 c + 1
  constexpr int AHEAD = 4;     // coordinates whose numbers are asked for together
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ Fetched<T, GROUP, DENSE, ROWS, ONE> fetched[FETCHES];
  const int i = blockIdx.x, features = JOINT<Loss> ? d / outputs : d;
  const Columns<Loss, B, V> mine(blockIdx.y, runs, outputs, sharing);
  const size_t block = (size_t)blockIdx.y * nodes + i, stride = (size_t)mine.outputs * runs;
  T* w = (SHARED ? reinterpret_cast<T*>(shared) : room + block * (2 * (features + 1)) * WIDE) + threadIdx.x * V;
  size_t base[V];  // where this thread's columns of a stack (nodes, d, runs) begin
#pragma unroll
  for (int v = 0; v < V; ++v) base[v] = ((size_t)i * d + mine.output[v]) * runs + mine.run[v];
  for (int c = 0; c <= features; ++c) {  // one more is the column of the padding
    Vec x;
#pragma unroll
    for (int v = 0; v < V; ++v) x.of[v] = c < features && mine.real[v] ? w0[base[v] + c * stride] : T(0);
    *(Vec*)(w + 2 * c * WIDE) = x;
    *(Vec*)(w + (2 * c + 1) * WIDE) = Vec{};
  }
  const bool anywhere = isinf(radius);
  for (int r = 0; r < l; ++r) {
    add_gradient<T, Loss, GROUP, DENSE, ROWS, B, V, ONE>(rows, fetched, weights, runs, mine, i, theta, w);
    T s[V];  // noise for the worst model, or for the one that this step is taken at
#pragma unroll
    for (int v = 0; v < V; ++v) s[v] = std_[i];
    if (parts) {
      double squares[V] = {};  // in double precision: in single, those of long models overflow
      for (int c = 0; c < features; ++c) {
#pragma unroll
        for (int v = 0; v < V; ++v) squares[v] += (double)w[2 * c * WIDE + v] * (double)w[2 * c * WIDE + v];
      }
      mine.summed_by_run(squares);
#pragma unroll
      for (int v = 0; v < V; ++v) s[v] = T(std_[i] * part_at(squares[v], parts, knots, bound));
    }
    if (mode == 1) {
      __syncwarp();
      add_noise(mine, s, d, first_step + r, first_node + i, k, first_run, k0, k1, w);
      __syncwarp();
    }
    const T step = eta[(size_t)r * nodes + i], inverse = T(1) / (curvature[i] + step);
    T squares[V] = {};
    for (int first = 0; first < features; first += AHEAD) {
      T towards[AHEAD][V], sum[AHEAD][V], normal[AHEAD][V];
#pragma unroll
      for (int h = 0; h < AHEAD; ++h) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const bool here = first + h < features && mine.real[v];
          const size_t at = base[v] + (first + h) * stride;
          towards[h][v] = here ? pull[at] : T(0);
          sum[h][v] = here && anywhere && r ? mean[at] : T(0);
          normal[h][v] = here && mode == 2 ? given[(size_t)r * nodes * d * runs + at] : T(0);
        }
      }
#pragma unroll
      for (int h = 0; h < AHEAD; ++h) {
        const int c = first + h;
        if (c >= features) break;
        Vec x = *(const Vec*)(w + 2 * c * WIDE), g = *(const Vec*)(w + (2 * c + 1) * WIDE);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const T old = x.of[v];
          const T slope = g.of[v] + l1 * T((old > 0) - (old < 0)) + l2 * old - s[v] * normal[h][v];
          const T next = (step * old - slope + towards[h][v]) * inverse;
          squares[v] += next * next;
          x.of[v] = next;
          if (anywhere && mine.real[v]) mean[base[v] + c * stride] = sum[h][v] + next;
        }
        *(Vec*)(w + 2 * c * WIDE) = x;
        *(Vec*)(w + (2 * c + 1) * WIDE) = Vec{};
      }
    }
    if (!anywhere) {
      mine.summed_by_run(squares);
      for (int c = 0; c < features; ++c) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const T norm = sqrt(squares[v]), next = w[2 * c * WIDE + v] * (norm > radius ? radius / norm : T(1));
          w[2 * c * WIDE + v] = next;
          const size_t at = base[v] + c * stride;
          if (mine.real[v]) mean[at] = (r ? mean[at] : T(0)) + next;
        }
      }
    }
  }
  for (int c = 0; c < features; ++c) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (!mine.real[v]) continue;
      const size_t at = base[v] + c * stride;
      const T sum = mean[at], end = w[2 * c * WIDE + v];
      last[at] = end;
      total[at] = w0[at] + (sum - end);  // w_0 .. w_{l-1} is w_1 .. w_l, plus the first, less the last
      mean[at] = sum / T(l);
    }
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

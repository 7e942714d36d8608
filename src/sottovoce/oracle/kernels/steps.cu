// The l noisy linearised steps of one round on a GPU; the formulas are those of sottovoce/oracle/plain.py.
//
// One block serves one node and a tile of columns: a column is a run, or, if a loss has several outputs, one output of a
// run. The models w of all columns lie in shared memory, and a gradient g for every warp of the block. Warps take the
// rows of the node in turn, each into its own g; threads of a warp have different columns, and read a row at the same
// address. Then the coordinates are dealt out to all threads of a run, which add up the gradients, draw noise and move.
//
// What is scarce is not arithmetic but warps to hide latency with: shared memory holds some 250 columns of 100
// coordinates on a multiprocessor, if every warp has columns of its own. So warps share w; a warp works on ROWS rows at a time and on
// GROUP non-zeros of each, all of them in registers between the product and the sum; and its next rows are on their way
// while it does. Rows are padded to whole groups, with zeros in a column of their own, and nodes to a whole number of
// ROWS. Up to DENSE columns that the widest rows have stay in registers for all rows of a node.

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

// ---- columns: who has which ----------------------------------------------------------------------------------------

constexpr int LANES = 32;  // threads of a warp

// What a thread works on. With the rows, V columns: its run, or V outputs of it, which a power of two of threads share
// that lie side by side; so do all warps. With the coordinates, blocks of four: every `turns`-th from `turn` on.
template <typename Loss, int WARPS, int V> struct Part {
  int warp, lane;
  int outputs, sharing, place;  // of a run: its outputs, and the threads of a warp that share it; which of them this is
  int run;                      // one that is not there is the last one: nothing of it is written
  bool real;
  int turn, turns;

  __device__ inline Part(int tile, int runs, int outputs_, int sharing_)
      : warp(__shfl_sync(~0u, threadIdx.x / LANES, 0)),  // which tells the compiler that a warp has only one
        lane(threadIdx.x % LANES),
        outputs(JOINT<Loss> ? outputs_ : 1),
        sharing(JOINT<Loss> ? sharing_ : 1),
        place(lane % sharing) {
    const int q = tile * (LANES / sharing) + lane / sharing;
    real = q < runs;
    run = real ? q : runs - 1;
    turn = warp * sharing + place;
    turns = WARPS * sharing;
  }

  __device__ inline int output(int v) const { return JOINT<Loss> ? place + v * sharing : 0; }

  // Where coordinate c of the model of this thread's run is, relative to the block's first number.
  __device__ inline int at(int c) const {
    constexpr int APART = (1 + WARPS) * LANES * V;
    if constexpr (!JOINT<Loss>) return c * APART + lane;
    const int output = c % outputs;
    return c / outputs * APART + (lane - place + output % sharing) * V + output / sharing;
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
};

__device__ inline float vanishing(float) { return 1e-18f; }  // the squares of what is smaller are no normal numbers
__device__ inline double vanishing(double) { return 1e-140; }

// Turn a row's predictions into its slopes, no longer than the cap.
template <typename Loss, typename T, int WARPS, int V>
__device__ inline void slopes(T* z, T b, T cap, T theta, const Part<Loss, WARPS, V>& mine) {
#pragma unroll
  for (int v = 0; v < V; ++v) z[v] = settled(z[v]);
  if constexpr (!JOINT<Loss>) {
#pragma unroll
    for (int v = 0; v < V; ++v) z[v] = least(most(Loss::template slope<T>(z[v], b, theta), -cap), cap);
  } else {  // p - e_b, as in kernels/softmax.py
    T top = -far(cap), total = 0, rest = 0, squares = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) top = mine.output(v) < mine.outputs ? most(top, z[v]) : top;
    top = mine.largest(top);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      z[v] = mine.output(v) < mine.outputs ? exp_(z[v] - top) : T(0);
      total += z[v];
    }
    total = mine.summed(total);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      z[v] = T(mine.output(v)) == b ? T(0) : over(z[v], total);
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
    for (int v = 0; v < V; ++v) z[v] = (T(mine.output(v)) == b ? -rest : z[v]) * scale;
  }
}

// ---- Philox4x32-10 and normals, as in kernels/random.py ------------------------------------------------------------

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

// What is fetched of ROWS rows ahead of time, 16 bytes by every thread of a warp; the entries only of rows with one group.
template <typename T, int GROUP, int DENSE, int ROWS, bool ONE> struct __align__(16) Fetched {
  static constexpr int ENTRIES = ONE ? ROWS * GROUP * (int)sizeof(Entry<T>) : 0, DENSES = ROWS * DENSE * (int)sizeof(T);
  static constexpr int LABELS = ROWS * (int)sizeof(T), BYTES = ENTRIES + DENSES + 2 * LABELS;
  static_assert(LABELS % 16 == 0 && DENSES % 16 == 0 && ENTRIES % 16 == 0, "whole pieces");
  unsigned char bytes[BYTES];

  __device__ inline Pair<T> entries(int n) const { return reinterpret_cast<const Pair<T>*>(bytes)[n]; }
  __device__ inline Values<T, DENSE ? DENSE : 4> dense(int p) const {
    return reinterpret_cast<const Values<T, DENSE ? DENSE : 4>*>(bytes + ENTRIES)[p];
  }
  __device__ inline T label(int p) const { return reinterpret_cast<const T*>(bytes + ENTRIES + DENSES)[p]; }
  __device__ inline T cap(int p) const { return reinterpret_cast<const T*>(bytes + ENTRIES + DENSES + LABELS)[p]; }
};

// What a thread has copied, from one ROWS rows to the next that are its warp's.
template <typename Batch, int ROWS, int WARPS> struct Fetcher {
  static constexpr int EACH = (Batch::BYTES + 16 * LANES - 1) / (16 * LANES);
  const unsigned char* from[EACH];
  int apart[EACH];  // bytes
  int lane;

  template <typename T> __device__ inline Fetcher(const Rows<T>& rows, int j, int lane_) : lane(lane_) {
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const void* first = rows.entries;
      int at = 16 * (n * LANES + lane), bytes = Batch::ENTRIES;
      if (at >= bytes) at -= bytes, first = rows.dense, bytes = Batch::DENSES;
      if (first == rows.dense && at >= bytes) at -= bytes, first = rows.labels, bytes = Batch::LABELS;
      if (first == rows.labels && at >= bytes) at -= bytes, first = rows.cap;
      from[n] = (const unsigned char*)first + (size_t)(j / ROWS) * bytes + at;
      apart[n] = bytes * WARPS;
    }
  }

  // Have the next ones copied, if there are any.
  __device__ inline void ask(Batch& to, bool any) {
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
      const int at = 16 * (n * LANES + lane);
      if (any && at < Batch::BYTES) {
#if __CUDA_ARCH__ >= 800
        const u32 there = (u32)__cvta_generic_to_shared(to.bytes + at);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from[n]) : "memory");
#else
        *(Values<float, 4>*)(to.bytes + at) = *(const Values<float, 4>*)from[n];
#endif
      }
      from[n] += apart[n];
    }
  }
};

// Until what the warp asked for is there; nobody reads what came before any more.
__device__ inline void await() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncwarp();
}

// Add a warp's part of the data's gradient at w to its g. Coordinate c of w and of every warp's g is row c of `models`.
template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int WARPS, int V, bool ONE>
__device__ inline void add_gradient(const Rows<T>& rows, Fetched<T, GROUP, DENSE, ROWS, ONE>* fetched,
                                    const T* __restrict__ weights, int runs, const Part<Loss, WARPS, V>& mine, int i,
                                    T theta, T* models) {
  typedef Vector<T, V> Vec;
  constexpr int APART = (1 + WARPS) * (int)sizeof(Vec) * LANES;  // bytes
  char *w = (char*)(models + mine.lane * V), *g = w + (1 + mine.warp) * (LANES * (int)sizeof(Vec));
  const T share = rows.share[i];
  const int begin = rows.offsets[i] + mine.warp * ROWS, end = rows.offsets[i + 1];
  Vec wd[DENSE + 1], gd[DENSE + 1];  // one more, since an array of none is not allowed
#pragma unroll
  for (int c = 0; c < DENSE; ++c) {
    wd[c] = *(const Vec*)(w + rows.columns[c] * APART);
    gd[c] = Vec{};
  }
  __syncwarp();  // nobody reads the last step's rows any more
  Fetcher<Fetched<T, GROUP, DENSE, ROWS, ONE>, ROWS, WARPS> fetcher(rows, begin, mine.lane);
  fetcher.ask(fetched[0], begin < end);
  int odd = 0;
  for (int j = begin; j < end; j += WARPS * ROWS) {
    await();
    fetcher.ask(fetched[1 - odd], j + WARPS * ROWS < end);
    const Fetched<T, GROUP, DENSE, ROWS, ONE>& here = fetched[odd];
    odd = 1 - odd;
    T value[ROWS][GROUP], z[ROWS][V];
    int place[ROWS][GROUP];
    Values<T, DENSE ? DENSE : 4> dense[ROWS];
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
#pragma unroll
      for (int v = 0; v < V; ++v) z[p][v] = 0;
      if (DENSE) dense[p] = here.dense(p);
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
          const Pair<T> a = ONE ? here.entries((p * GROUP + e) / 2) : rows.entries[(size_t)group * (GROUP / 2) + e / 2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            value[p][e + h] = a.of[h].value;
            place[p][e + h] = (int)a.of[h].column * APART;
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
    for (int p = 0; p < ROWS; ++p) slopes<Loss>(z[p], here.label(p), here.cap(p), theta, mine);
    if (weights) {
#pragma unroll
      for (int p = 0; p < ROWS; ++p) {
        const int id = rows.ids[j + p];
        const T weight = id < 0 ? T(0) : weights[(size_t)id * runs + mine.run];
#pragma unroll
        for (int v = 0; v < V; ++v) z[p][v] *= weight;
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
            place[p][e] = (int)a.column * APART;
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
    T* sum = (T*)(g + rows.columns[c] * APART);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += gd[c].of[v];
  }
}

// The squared norm of the model of a thread's run, in double precision: in single, those of long models overflow.
template <typename T, typename Loss, int WARPS, int V>
__device__ inline double squared(const Part<Loss, WARPS, V>& mine, int features, const T* models) {
  double sum = 0;
  for (int c = 0; c < features; ++c) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const double x = models[(c * (1 + WARPS) * LANES + mine.lane) * V + v];
      sum += x * x;
    }
  }
  return mine.summed(sum);
}

template <typename T, typename Loss, int GROUP, int DENSE, int ROWS, int WARPS, int V, bool ONE, bool SHARED>
__global__ void __launch_bounds__(WARPS * LANES, (sizeof(T) == 4 ? 12 : 8) / WARPS) noisy_steps(
    Rows<T> rows, const T* __restrict__ weights, const T* __restrict__ given, const T* __restrict__ eta,
    const T* __restrict__ curvature, const T* __restrict__ std_, const T* __restrict__ w0, const T* __restrict__ pull,
    T* __restrict__ last, T* __restrict__ mean, T* __restrict__ total, T* __restrict__ room, int nodes, int d, int outputs,
    int sharing, int runs, int l, int first_step, T theta, T l1, T l2, T radius, const double* __restrict__ parts,
    int knots, double bound, int mode, u32 k0, u32 k1, u32 k, u32 first_node, u32 first_run) {
  constexpr int WIDE = LANES * V, APART = (1 + WARPS) * WIDE;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ Fetched<T, GROUP, DENSE, ROWS, ONE> fetched[WARPS][2];  // one in use, one on its way
  const int i = blockIdx.x, features = JOINT<Loss> ? d / outputs : d;
  const Part<Loss, WARPS, V> mine(blockIdx.y, runs, outputs, sharing);
  const size_t block = (size_t)blockIdx.y * nodes + i, base = (size_t)i * d * runs + mine.run;
  T* models = SHARED ? reinterpret_cast<T*>(shared) : room + block * (features + 1) * APART;
  for (int n = threadIdx.x; n < (features + 1) * APART; n += WARPS * LANES) models[n] = 0;  // the padding's column, too
  __syncthreads();
  for (int four = mine.turn; 4 * four < d; four += mine.turns) {
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int c = 4 * four + b;
      if (c < d) models[mine.at(c)] = w0[base + (size_t)c * runs];
    }
  }
  const bool anywhere = isinf(radius);
  for (int r = 0; r < l; ++r) {
    __syncthreads();
    add_gradient<T, Loss, GROUP, DENSE, ROWS, WARPS, V, ONE>(rows, fetched[mine.warp], weights, runs, mine, i, theta,
                                                             models);
    // Noise for the worst model, or for the one that this step is taken at.
    const T s = parts ? T(std_[i] * part_at(squared(mine, features, models), parts, knots, bound)) : std_[i];
    const T step = eta[(size_t)r * nodes + i], inverse = T(1) / (curvature[i] + step);
    __syncthreads();
    for (int four = mine.turn; 4 * four < d; four += mine.turns) {
      T towards[4], sum[4], n[4] = {0, 0, 0, 0};
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int c = 4 * four + b;
        const size_t at = base + (size_t)c * runs;
        towards[b] = c < d ? pull[at] : T(0);
        sum[b] = c < d && anywhere && r ? mean[at] : T(0);
        if (mode == 2) n[b] = c < d ? given[(size_t)r * nodes * d * runs + at] : T(0);
      }
      if (mode == 1) {
        const Words x = philox(((u32)(first_step + r) << 20) | four, first_node + i, k, first_run + mine.run, k0, k1);
        normal_pair<T>(x.x0, x.x1, n, n + 1);
        normal_pair<T>(x.x2, x.x3, n + 2, n + 3);
      }
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int c = 4 * four + b;
        if (c < d) {
          T* w = models + mine.at(c);
          T slope = 0;
#pragma unroll
          for (int warp = 0; warp < WARPS; ++warp) {
            slope += w[(1 + warp) * WIDE];
            w[(1 + warp) * WIDE] = 0;
          }
          const T old = *w;
          slope += l1 * T((old > 0) - (old < 0)) + l2 * old - s * n[b];
          const T next = (step * old - slope + towards[b]) * inverse;
          *w = next;
          if (anywhere && mine.real) mean[base + (size_t)c * runs] = sum[b] + next;
        }
      }
    }
    if (!anywhere) {
      __syncthreads();
      const T norm = sqrt(squared(mine, features, models)), scale = norm > radius ? radius / norm : T(1);
      __syncthreads();
      for (int four = mine.turn; 4 * four < d; four += mine.turns) {
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const int c = 4 * four + b;
          if (c < d) {
            const size_t at = base + (size_t)c * runs;
            const T next = models[mine.at(c)] * scale;
            models[mine.at(c)] = next;
            if (mine.real) mean[at] = (r ? mean[at] : T(0)) + next;
          }
        }
      }
    }
  }
  for (int four = mine.turn; 4 * four < d && mine.real; four += mine.turns) {
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int c = 4 * four + b;
      if (c < d) {
        const size_t at = base + (size_t)c * runs;
        const T sum = mean[at], end = models[mine.at(c)];
        last[at] = end;
        total[at] = w0[at] + (sum - end);  // w_0 .. w_{l-1} is w_1 .. w_l, plus the first, less the last
        mean[at] = sum / T(l);
      }
    }
  }
}

// ---- batches, as in kernels/random.py ------------------------------------------------------------------------------

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

// What CUDA C has beyond C++, for g++: the threads of a block are contexts of one thread of the processor, which take turns
// where they wait for each other. It stands before the text of a program, which is compiled as it is.

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static thread_local

struct uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
struct Place { unsigned x; };

static thread_local Place threadIdx, blockIdx, gridDim;

// Bits.
static float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
static unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }

typedef short Shorts __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
static float f16_to_float(unsigned short bits) { return __builtin_ia32_vcvtph2ps((Shorts){(short)bits})[0]; }
static unsigned short float_to_f16(float x) { return (unsigned short)__builtin_ia32_vcvtps2ph((Floats){x}, 0)[0]; }

// Functions: the C library's.
#define ONE(name) extern "C" double name(double); extern "C" float name##f(float);
#define TWO(name) extern "C" double name(double, double); extern "C" float name##f(float, float);
ONE(exp) ONE(exp2) ONE(expm1) ONE(log) ONE(log2) ONE(log10) ONE(log1p) ONE(sqrt) ONE(sin) ONE(cos) ONE(tan) ONE(asin)
ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(floor) ONE(ceil)
ONE(rint) ONE(trunc) ONE(fabs)
TWO(fmod) TWO(fmax) TWO(pow) TWO(atan2) TWO(copysign)
static float floor(float x) { return floorf(x); }
static float fmod(float x, float y) { return fmodf(x, y); }
static float copysign(float x, float y) { return copysignf(x, y); }
static float __fdividef(float x, float y) { return x / y; }
template <class T> static bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static bool isinf(T x) { return __builtin_isinf(x); }

// What a thread waits for.
enum State { RUNS, AT_WARP, AT_BLOCK, DONE };

enum { WARP = 32, MOST = 1024, STACK = 64 << 10 };

struct Block {
    ucontext_t scheduler, contexts[MOST];
    State states[MOST];
    // What threads hand to others of their warp: those who are late still read one half when others write to the other.
    unsigned long handed[2][MOST];
    unsigned char halves[MOST];
    char *stacks;
    void (*kernel)(void);
    long *arguments;
};
static thread_local Block *block;

static void wait_at(State where) {
    unsigned thread = threadIdx.x;
    block->states[thread] = where;
    swapcontext(&block->contexts[thread], &block->scheduler);
    threadIdx.x = thread;
}

static void __syncthreads() { wait_at(AT_BLOCK); }
static void __syncwarp() { wait_at(AT_WARP); }

template <class T> static T handed_by(T value, unsigned other) {
    unsigned thread = threadIdx.x, half = block->halves[thread] ^= 1;
    __builtin_memcpy(&block->handed[half][thread], &value, sizeof value);
    wait_at(AT_WARP);
    __builtin_memcpy(&value, &block->handed[half][thread / WARP * WARP + other], sizeof value);
    return value;
}

template <class T> static T __shfl_xor_sync(unsigned, T value, int bits) {
    return handed_by(value, (threadIdx.x % WARP) ^ bits);
}

template <class T> static T __shfl_sync(unsigned, T value, int source, int width) {
    unsigned lane = threadIdx.x % WARP;
    return handed_by(value, lane / width * width + source % width);
}

static void thread_main() {
    const long *a = block->arguments;
    // As many as a kernel may have: on x86-64 a function does not see those it does not take.
    typedef void (*Kernel)(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                           long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long);
    ((Kernel)block->kernel)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
                            a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27],
                            a[28], a[29], a[30], a[31]);
    wait_at(DONE);
}

static void wrong(const char *what) {
    fprintf(stderr, "block %u: %s\n", blockIdx.x, what);
    abort();
}

// The one state of these threads.
static State state_of(unsigned first, unsigned end) {
    for (unsigned thread = first; thread < end; thread++)
        if (block->states[thread] != block->states[first])
            wrong("threads that should wait for each other wait at different places");
    return block->states[first];
}

// Runs the threads of a warp for as long as they wait for each other only.
static void run_warp(unsigned first) {
    do {
        for (unsigned thread = first; thread < first + WARP; thread++) {
            block->states[thread] = RUNS;
            threadIdx.x = thread;
            swapcontext(&block->scheduler, &block->contexts[thread]);
        }
    } while (state_of(first, first + WARP) == AT_WARP);
}

static void run_block(unsigned threads) {
    for (unsigned thread = 0; thread < threads; thread++) {
        ucontext_t *context = &block->contexts[thread];
        getcontext(context);
        context->uc_stack.ss_sp = block->stacks + (size_t)thread * STACK;
        context->uc_stack.ss_size = STACK;
        makecontext(context, thread_main, 0);
    }
    // One warp runs far ahead of the others: now the first one, now the last one.
    do {
        for (unsigned at = 0; at < threads; at += WARP)
            run_warp(blockIdx.x % 2 ? threads - WARP - at : at);
    } while (state_of(0, threads) == AT_BLOCK);
}

// Runs a function of the program with so many blocks of so many threads, a multiple of a warp.
extern "C" void run_grid(void (*kernel)(void), unsigned blocks, unsigned threads, long *arguments) {
    if (!block) {
        block = (Block *)calloc(1, sizeof(Block));
        block->stacks = (char *)malloc((size_t)MOST * STACK);
    }
    block->kernel = kernel;
    block->arguments = arguments;
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        run_block(threads);
}

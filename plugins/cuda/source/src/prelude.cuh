// What stands at the head of every program, before `flambeau_c_text::OPERATIONS`. f16 and bf16 are their bits. NVRTC reads no
// header files.

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define FUNCTION static __device__ __forceinline__
#define INT_MIN (-0x7fffffff - 1)
#define LONG_MIN (-0x7fffffffffffffffl - 1)

FUNCTION float as_float(uint bits) { return __uint_as_float(bits); }
FUNCTION double as_double(long bits) { return __longlong_as_double(bits); }
FUNCTION int as_int(uint bits) { return (int)bits; }
FUNCTION long as_long(ulong bits) { return (long)bits; }

#ifdef __CUDA_ARCH__
FUNCTION float f16_to_float(ushort bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

FUNCTION ushort float_to_f16(float x) {
    ushort bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#endif

FUNCTION float bf16_to_float(ushort bits) { return as_float((uint)bits << 16); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FUNCTION ushort float_to_bf16(float x) {
    ushort bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#else
FUNCTION ushort float_to_bf16(float x) {
    uint bits = __float_as_uint(x);
    return isnan(x) ? 0x7fc0 : (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#endif

// What the type does not hold becomes its least number, as on x86-64.
FUNCTION int to_int(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int)x : INT_MIN; }
FUNCTION int to_int(double x) { return x > -2147483649.0 && x < 0x1p31 ? (int)x : INT_MIN; }
FUNCTION long to_long(float x) { return x >= -0x1p63f && x < 0x1p63f ? (long)x : LONG_MIN; }
FUNCTION long to_long(double x) { return x >= -0x1p63 && x < 0x1p63 ? (long)x : LONG_MIN; }

// Both are rounded once.
FUNCTION float div_float(float a, float b) { return a / b; }
FUNCTION double div_double(double a, double b) { return a / b; }
FUNCTION float sqrt_float(float a) { return sqrtf(a); }
FUNCTION double sqrt_double(double a) { return sqrt(a); }

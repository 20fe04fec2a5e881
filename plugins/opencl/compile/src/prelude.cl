// What stands at the head of every program, before `flambeau_c_text::OPERATIONS`. f16 and bf16 are their bits.

#define FUNCTION static

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

static float f16_to_float(ushort bits) {
    return vload_half(0, (const half *)&bits);
}

static ushort float_to_f16(float x) {
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return bits;
}

static float bf16_to_float(ushort bits) {
    return as_float((uint)bits << 16);
}

static ushort float_to_bf16(float x) {
    uint bits = as_uint(x);
    return isnan(x) ? 0x7fc0 : (ushort)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What the type does not hold becomes its least number, as on x86-64.
static int to_int(double x) {
    double whole = trunc(x);
    return whole >= -0x1p31 && whole < 0x1p31 ? (int)whole : INT_MIN;
}

static long to_long(double x) {
    double whole = trunc(x);
    return whole >= -0x1p63 && whole < 0x1p63 ? (long)whole : LONG_MIN;
}

// A quotient or root of f64 that is rounded once more is the nearest f32.
#ifdef ROUNDS_F32
static float div_float(float a, float b) { return a / b; }
static float sqrt_float(float a) { return sqrt(a); }
#else
static float div_float(float a, float b) { return (float)((double)a / (double)b); }
static float sqrt_float(float a) { return (float)sqrt((double)a); }
#endif
static double div_double(double a, double b) { return a / b; }
static double sqrt_double(double a) { return sqrt(a); }
